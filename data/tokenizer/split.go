package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/dlclark/regexp2/v2"
)

// splitter divides a piece of a text into smaller ones; first says that the piece
// begins the text.
type splitter func(piece string, first bool) ([]string, error)

// gpt2Words is how gpt2 divides a text, which ByteLevel does unless told not to.
const gpt2Words = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

func readSplitter(raw *json.RawMessage) ([]splitter, error) {
	p, err := readPart(raw, "pre_tokenizer")
	if err != nil || p == nil {
		return nil, err
	}
	switch p.Type {
	case "Sequence":
		var all []splitter
		for i := range p.Pretokenizers {
			list, err := readSplitter(&p.Pretokenizers[i])
			if err != nil {
				return nil, err
			}
			all = append(all, list...)
		}
		return all, nil
	case "ByteLevel":
		return p.byteLevel()
	case "Split":
		re, err := p.Pattern.expression("pre_tokenizer Split")
		if err != nil {
			return nil, err
		}
		s, err := splitBy(re, p.Behavior, p.Invert)
		return []splitter{s}, err
	case "Digits":
		behavior, re := "Contiguous", regexp2.MustCompile(`\p{N}`)
		if p.Individual {
			behavior = "Isolated"
		}
		s, err := splitBy(re, behavior, false)
		return []splitter{s}, err
	case "Metaspace":
		return []splitter{p.metaspace()}, nil
	}
	return nil, fmt.Errorf("the pre_tokenizer %q is not known", p.Type)
}

// byteLevel divides into words and writes their bytes as letters.
func (p *part) byteLevel() ([]splitter, error) {
	var list []splitter
	if p.Prefix {
		list = append(list, func(s string, _ bool) ([]string, error) {
			if !strings.HasPrefix(s, " ") {
				s = " " + s
			}
			return []string{s}, nil
		})
	}
	if p.UseRegex == nil || *p.UseRegex {
		words, err := splitBy(regexp2.MustCompile(gpt2Words), "Isolated", false)
		if err != nil {
			return nil, err
		}
		list = append(list, words)
	}
	return append(list, func(s string, _ bool) ([]string, error) { return []string{toLetters(s)}, nil }), nil
}

// metaspace writes spaces as a letter, and divides before each.
func (p *part) metaspace() splitter {
	scheme := "always"
	if p.Scheme != nil {
		scheme = *p.Scheme
	} else if !p.Prefix {
		scheme = "never"
	}
	return func(s string, first bool) ([]string, error) {
		s = strings.ReplaceAll(s, " ", p.Replacement)
		if (scheme == "always" || scheme == "first" && first) && !strings.HasPrefix(s, p.Replacement) {
			s = p.Replacement + s
		}
		if p.Split != nil && !*p.Split {
			return []string{s}, nil
		}
		var list []string
		for s != "" {
			end := strings.Index(s[min(len(s), len(p.Replacement)):], p.Replacement)
			if !strings.HasPrefix(s, p.Replacement) {
				end = strings.Index(s, p.Replacement)
			} else if end >= 0 {
				end += len(p.Replacement)
			}
			if end < 0 {
				end = len(s)
			}
			list, s = append(list, s[:end]), s[end:]
		}
		return list, nil
	}
}

// span is a part of a text: a match, or what lies between two.
type span struct {
	from, to int
	match    bool
}

// splitBy divides by a pattern. behavior says what becomes of a match; invert takes
// what lies between matches for them.
func splitBy(re *regexp2.Regexp, behavior string, invert bool) (splitter, error) {
	switch behavior {
	case "Isolated", "Removed", "Contiguous", "MergedWithPrevious", "MergedWithNext":
	default:
		return nil, fmt.Errorf("pre_tokenizer: the behavior %q is not known", behavior)
	}
	return func(s string, _ bool) ([]string, error) {
		places, err := re.FindAllStringIndex(s, -1)
		if err != nil {
			return nil, fmt.Errorf("pre_tokenizer: %w", err)
		}
		var spans []span
		from := 0
		for _, m := range append(places, []int{len(s), len(s)}) {
			if from < m[0] {
				spans = append(spans, span{from, m[0], invert})
			}
			if m[0] < m[1] {
				spans = append(spans, span{m[0], m[1], !invert})
			}
			from = m[1]
		}
		return cut(s, spans, behavior), nil
	}, nil
}

// cut joins the spans of a text as a behavior has it.
func cut(s string, spans []span, behavior string) []string {
	var list []string
	joins := false // what follows is joined to the last piece
	for i, x := range spans {
		text := s[x.from:x.to]
		previous := i > 0 && spans[i-1].match
		switch {
		case behavior == "Removed" && x.match:
			continue
		case behavior == "Contiguous" && x.match && previous,
			behavior == "MergedWithPrevious" && x.match && i > 0 && !previous,
			behavior == "MergedWithNext" && joins:
			list[len(list)-1] += text
		default:
			list = append(list, text)
		}
		joins = x.match && behavior == "MergedWithNext"
	}
	return list
}
