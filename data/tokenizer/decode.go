package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
)

// decoder changes the texts of tokens into parts of a text.
type decoder func(parts []string) []string

// letters are the characters that stand for bytes: printable ones for themselves,
// the others from U+0100 on, as gpt2 has them.
var letters, bytesOf = func() (to [256]rune, back map[rune]byte) {
	back = map[rune]byte{}
	next := rune(256)
	for b := range 256 {
		r := rune(b)
		if !(b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae) {
			r = next
			next++
		}
		to[b], back[r] = r, byte(b)
	}
	return to, back
}()

// toLetters writes the bytes of a text as letters.
func toLetters(s string) string {
	var out strings.Builder
	out.Grow(2 * len(s))
	for i := range len(s) {
		out.WriteRune(letters[s[i]])
	}
	return out.String()
}

// fromLetters is the text whose bytes are written as letters; one with other
// characters is as it is.
func fromLetters(s string) string {
	out := make([]byte, 0, len(s))
	for _, r := range s {
		b, ok := bytesOf[r]
		if !ok {
			return s
		}
		out = append(out, b)
	}
	return string(out)
}

func readDecoder(raw *json.RawMessage) ([]decoder, error) {
	p, err := readPart(raw, "decoder")
	if err != nil || p == nil {
		return nil, err
	}
	switch p.Type {
	case "Sequence":
		var all []decoder
		for i := range p.Decoders {
			list, err := readDecoder(&p.Decoders[i])
			if err != nil {
				return nil, err
			}
			all = append(all, list...)
		}
		return all, nil
	case "ByteLevel":
		return []decoder{each(fromLetters)}, nil
	case "Replace":
		re, err := p.Pattern.expression("decoder Replace")
		if err != nil {
			return nil, err
		}
		return []decoder{each(func(s string) string { return replaceAll(re, s, p.Content) })}, nil
	case "ByteFallback":
		return []decoder{each(fromByte)}, nil
	case "Fuse":
		return []decoder{func(parts []string) []string { return []string{strings.Join(parts, "")} }}, nil
	case "Strip":
		return []decoder{each(p.stripped)}, nil
	case "Metaspace":
		return []decoder{p.fromMetaspace}, nil
	}
	return nil, fmt.Errorf("the decoder %q is not known", p.Type)
}

func each(f func(string) string) decoder {
	return func(parts []string) []string {
		for i, s := range parts {
			parts[i] = f(s)
		}
		return parts
	}
}

// fromByte is the byte that a token such as <0x0A> stands for.
func fromByte(s string) string {
	var b byte
	if len(s) == 6 && strings.HasPrefix(s, "<0x") {
		if _, err := fmt.Sscanf(s, "<0x%02X>", &b); err == nil {
			return string([]byte{b})
		}
	}
	return s
}

// stripped takes a character off both ends, so many times at most.
func (p *part) stripped(s string) string {
	for range p.Start {
		s = strings.TrimPrefix(s, p.Content)
	}
	for range p.Stop {
		s = strings.TrimSuffix(s, p.Content)
	}
	return s
}

// fromMetaspace writes the letter of spaces as a space, and leaves out the one that
// was put before the text.
func (p *part) fromMetaspace(parts []string) []string {
	prepends := p.Scheme == nil && p.Prefix || p.Scheme != nil && *p.Scheme != "never"
	for i, s := range parts {
		if i == 0 && prepends {
			s = strings.TrimPrefix(s, p.Replacement)
		}
		parts[i] = strings.ReplaceAll(s, p.Replacement, " ")
	}
	return parts
}
