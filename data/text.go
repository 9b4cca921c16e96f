package data

import (
	"context"
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
	// MaxTokens bounds the text's own characters, where Vocabulary is nil: a
	// text with more is refused as soon as one comes. 0 means 65,536.
	MaxTokens int
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

// LoadText reads a file, which may be a pipe. It returns when ctx is done, even
// where nobody writes to the pipe. What it takes is two bytes a character.
func LoadText(ctx context.Context, path string, opts TextOptions) (*Text, error) {
	type result struct {
		t   *Text
		err error
	}
	done := make(chan result, 1)
	go func() { // opening a pipe or reading from it may never end
		t, err := loadText(ctx, path, opts)
		done <- result{t, err}
	}()
	select {
	case r := <-done:
		return r.t, r.err
	case <-ctx.Done():
		return nil, fmt.Errorf("load text %s: %w", path, ctx.Err())
	}
}

func loadText(ctx context.Context, path string, opts TextOptions) (*Text, error) {
	limit := opts.MaxBytes
	if limit == 0 {
		limit = 1 << 30
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("load text: %w", err)
	}
	defer file.Close()
	stat, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("load text: %w", err)
	}
	if stat.IsDir() {
		return nil, fmt.Errorf("load text: %s is a folder, want a text file", path)
	}
	long := fmt.Errorf("load text: %s has more than the %d bytes that are allowed", path, limit)
	if stat.Size() > limit {
		return nil, long
	}
	// A pipe has no size, so the reading is bounded too.
	in := &io.LimitedReader{R: until{ctx, file}, N: limit + 1}
	t, err := newText(path, in, stat.Size(), opts)
	if err == nil && in.N == 0 {
		return nil, long
	}
	return t, err
}

// NewText takes a text from memory; name stands in errors.
func NewText(name, content string, opts TextOptions) (*Text, error) {
	return newText(name, strings.NewReader(content), int64(len(content)), opts)
}

// newText reads a text of about size bytes.
func newText(name string, r io.Reader, size int64, opts TextOptions) (*Text, error) {
	held := opts.Validation
	switch {
	case math.IsNaN(held) || held >= 1:
		return nil, fmt.Errorf("text %s: validation part is %v, want less than 1", name, held)
	case held == 0:
		held = 0.1
	case held < 0:
		held = 0
	}
	z := &tokenizer{vocabulary: opts.Vocabulary, most: opts.MaxTokens, tokens: make([]uint16, 0, size)}
	sum, err := z.read(r)
	if err == nil && len(z.tokens) == 0 {
		err = errors.New("is empty")
	}
	if err != nil {
		return nil, fmt.Errorf("text %s: %w", name, err)
	}
	t := &Text{name: name, Vocabulary: z.vocabulary, SHA256: sum, tokens: z.tokens}
	t.split = len(t.tokens) - int(math.Round(held*float64(len(t.tokens))))
	return t, nil
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
