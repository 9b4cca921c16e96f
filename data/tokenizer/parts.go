package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/dlclark/regexp2/v2"
	"golang.org/x/text/unicode/norm"
)

// normalizer changes a text before it is divided.
type normalizer func(text string) string

// part is a normalizer, a pre-tokenizer or a decoder of a file.
type part struct {
	Type          string            `json:"type"`
	Normalizers   []json.RawMessage `json:"normalizers"`
	Pretokenizers []json.RawMessage `json:"pretokenizers"`
	Decoders      []json.RawMessage `json:"decoders"`
	Processors    []json.RawMessage `json:"processors"`
	Pattern       *pattern          `json:"pattern"`
	Content       string            `json:"content"`
	Prepend       string            `json:"prepend"`
	Behavior      string            `json:"behavior"`
	Invert        bool              `json:"invert"`
	Prefix        bool              `json:"add_prefix_space"`
	UseRegex      *bool             `json:"use_regex"`
	Individual    bool              `json:"individual_digits"`
	Replacement   string            `json:"replacement"`
	Scheme        *string           `json:"prepend_scheme"`
	Split         *bool             `json:"split"`
	Start         int               `json:"start"`
	Stop          int               `json:"stop"`
	StripLeft     bool              `json:"strip_left"`
	StripRight    bool              `json:"strip_right"`
}

type pattern struct {
	String *string
	Regex  *string
}

// readPart reads one part; nil where the file has null.
func readPart(raw *json.RawMessage, what string) (*part, error) {
	if raw == nil || string(*raw) == "null" {
		return nil, nil
	}
	p := new(part)
	if err := json.Unmarshal(*raw, p); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return p, nil
}

// expression is the pattern as a regular expression of the library's syntax, with
// look-ahead, which Go's own lacks.
func (p *pattern) expression(what string) (*regexp2.Regexp, error) {
	if p == nil || p.String == nil && p.Regex == nil {
		return nil, fmt.Errorf("%s has no pattern", what)
	}
	text := ""
	if p.String != nil {
		text = regexp2.Escape(*p.String)
	} else {
		text = *p.Regex
	}
	re, err := regexp2.Compile(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return re, nil
}

func readNormalizer(raw *json.RawMessage) ([]normalizer, error) {
	p, err := readPart(raw, "normalizer")
	if err != nil || p == nil {
		return nil, err
	}
	switch p.Type {
	case "Sequence":
		var all []normalizer
		for i := range p.Normalizers {
			list, err := readNormalizer(&p.Normalizers[i])
			if err != nil {
				return nil, err
			}
			all = append(all, list...)
		}
		return all, nil
	case "NFC":
		return []normalizer{norm.NFC.String}, nil
	case "NFD":
		return []normalizer{norm.NFD.String}, nil
	case "NFKC":
		return []normalizer{norm.NFKC.String}, nil
	case "NFKD":
		return []normalizer{norm.NFKD.String}, nil
	case "Lowercase":
		return []normalizer{strings.ToLower}, nil
	case "Prepend":
		return []normalizer{func(s string) string { return p.Prepend + s }}, nil
	case "Strip":
		return []normalizer{p.strip}, nil
	case "Replace":
		re, err := p.Pattern.expression("normalizer Replace")
		if err != nil {
			return nil, err
		}
		return []normalizer{func(s string) string { return replaceAll(re, s, p.Content) }}, nil
	}
	return nil, fmt.Errorf("the normalizer %q is not known", p.Type)
}

func (p *part) strip(s string) string {
	if p.StripLeft {
		s = strings.TrimLeft(s, " \t\r\n")
	}
	if p.StripRight {
		s = strings.TrimRight(s, " \t\r\n")
	}
	return s
}

// replaceAll replaces every match by a text, as it is.
func replaceAll(re *regexp2.Regexp, s, content string) string {
	places, err := re.FindAllStringIndex(s, -1)
	if err != nil {
		return s // only a time limit fails, and there is none
	}
	var out strings.Builder
	from := 0
	for _, m := range places {
		out.WriteString(s[from:m[0]] + content)
		from = m[1]
	}
	return out.String() + s[from:]
}

// template is what a post-processor puts around a text.
type template struct {
	Single []struct {
		SpecialToken *struct {
			ID string `json:"id"`
		}
		Sequence *struct{}
	} `json:"single"`
	SpecialTokens map[string]struct {
		IDs []int32 `json:"ids"`
	} `json:"special_tokens"`
}

func readTemplate(raw *json.RawMessage) (begin, end []int32, err error) {
	p, err := readPart(raw, "post_processor")
	if err != nil || p == nil {
		return nil, nil, err
	}
	switch p.Type {
	case "ByteLevel": // of offsets
		return nil, nil, nil
	case "Sequence":
		for i := range p.Processors {
			b, e, err := readTemplate(&p.Processors[i])
			if err != nil {
				return nil, nil, err
			}
			begin, end = append(b, begin...), append(end, e...)
		}
		return begin, end, nil
	case "TemplateProcessing":
		var t template
		if err := json.Unmarshal(*raw, &t); err != nil {
			return nil, nil, fmt.Errorf("post_processor: %w", err)
		}
		return t.around()
	}
	return nil, nil, fmt.Errorf("the post_processor %q is not known", p.Type)
}

func (t *template) around() (begin, end []int32, err error) {
	seen := false
	for _, x := range t.Single {
		switch {
		case x.Sequence != nil:
			seen = true
		case x.SpecialToken == nil:
			return nil, nil, errors.New("post_processor: a template of neither text nor special tokens")
		default:
			ids := t.SpecialTokens[x.SpecialToken.ID].IDs
			if len(ids) == 0 {
				return nil, nil, fmt.Errorf("post_processor: %q has no token", x.SpecialToken.ID)
			}
			if seen {
				end = append(end, ids...)
			} else {
				begin = append(begin, ids...)
			}
		}
	}
	return begin, end, nil
}
