package data

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
)

// TextOptions says how a text is read. The zero value takes characters, the
// last tenth for validation, and files of at most 1 GiB.
type TextOptions struct {
	// Vocabulary is the tokens; nil means the text's own characters. A net
	// that exists already needs the one that it was trained with.
	Vocabulary *Vocabulary
	// Validation is the part at the text's end that is held out: 0 means 0.1,
	// negative none.
	Validation float64
	// MaxBytes bounds the file; 0 means 1 GiB.
	MaxBytes int64
}

// Text is a text as tokens, in two parts.
type Text struct {
	// Vocabulary is the tokens.
	Vocabulary *Vocabulary
	// SHA256 is the checksum of the text's bytes, in hexadecimal digits.
	SHA256 string
	name   string
	tokens []uint16
	split  int // where validation begins
}

// LoadText reads a file.
func LoadText(path string, opts TextOptions) (*Text, error) {
	content, err := readText(path, opts.MaxBytes)
	if err != nil {
		return nil, fmt.Errorf("load text: %w", err)
	}
	return NewText(path, content, opts)
}

func readText(path string, limit int64) (string, error) {
	if limit == 0 {
		limit = 1 << 30
	}
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	stat, err := file.Stat()
	if err != nil {
		return "", err
	}
	if stat.IsDir() {
		return "", fmt.Errorf("%s is a folder, want a text file", path)
	}
	var content strings.Builder
	if size := stat.Size(); size <= limit {
		content.Grow(int(size))
		// A pipe has no size, so the reading is bounded too.
		if _, err := io.Copy(&content, io.LimitReader(file, limit+1)); err != nil {
			return "", err
		}
	}
	if max(int64(content.Len()), stat.Size()) > limit {
		return "", fmt.Errorf("%s has more than the %d bytes that are allowed", path, limit)
	}
	return content.String(), nil
}

// NewText takes a text from memory; name stands in errors.
func NewText(name, content string, opts TextOptions) (*Text, error) {
	t := &Text{name: name, Vocabulary: opts.Vocabulary}
	hash := sha256.New()
	io.WriteString(hash, content) // a hash never fails
	t.SHA256 = hex.EncodeToString(hash.Sum(nil))
	err := t.build(content, opts)
	if err != nil {
		return nil, fmt.Errorf("text %s: %w", name, err)
	}
	return t, nil
}

func (t *Text) build(content string, opts TextOptions) (err error) {
	held := opts.Validation
	switch {
	case content == "":
		return errors.New("is empty")
	case math.IsNaN(held) || held >= 1:
		return fmt.Errorf("validation part is %v, want less than 1", held)
	case held == 0:
		held = 0.1
	case held < 0:
		held = 0
	}
	if t.Vocabulary == nil {
		if t.Vocabulary, err = Characters(content); err != nil {
			return err
		}
	}
	t.tokens = make([]uint16, 0, len(content))
	if err := t.Vocabulary.encode(content, func(token int32) { t.tokens = append(t.tokens, uint16(token)) }); err != nil {
		return err
	}
	t.split = len(t.tokens) - int(math.Round(held*float64(len(t.tokens))))
	return nil
}

// Len is the number of tokens of a part.
func (t *Text) Len(part Split) int { return len(t.part(part)) }

func (t *Text) part(part Split) []uint16 {
	if part == Train {
		return t.tokens[:t.split]
	}
	return t.tokens[t.split:]
}

// UnigramEntropy is the entropy of a part's token frequencies in nats: the loss
// of the best net that looks at no context. It is 0 for an empty part.
func (t *Text) UnigramEntropy(part Split) float64 {
	tokens := t.part(part)
	counts := make([]int, t.Vocabulary.Size())
	for _, token := range tokens {
		counts[token]++
	}
	sum := 0.0
	for _, c := range counts {
		if c > 0 {
			p := float64(c) / float64(len(tokens))
			sum -= p * math.Log(p)
		}
	}
	return sum
}
