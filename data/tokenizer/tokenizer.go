// Package tokenizer reads a tokenizer.json as Hugging Face's library writes it, and
// turns text into its tokens and back, as that library does: byte-pair encoding
// over bytes (gpt2, Llama 3, Qwen) or over characters with bytes to fall back on
// (Llama 2, Mistral). What a file asks for and is not here is refused by its name.
package tokenizer

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"
)

// FileName is the name of the file in a model's folder.
const FileName = "tokenizer.json"

// maxBytes bounds a file; the largest published ones have some 30 MB.
const maxBytes = 256 << 20

// Tokenizer turns text into tokens and back. It is not safe for concurrent use:
// pieces of text that it has seen are kept.
type Tokenizer struct {
	source    []byte
	size      int
	added     []addedToken
	special   map[int32]string // added tokens, which are text as it is
	normalize []normalizer
	split     []splitter
	model     *pairs
	decode    []decoder
	begin     []int32
	end       []int32
}

// Read reads a file.
func Read(path string) (*Tokenizer, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err == nil && len(b) > maxBytes {
		err = fmt.Errorf("has more than %d bytes", maxBytes)
	}
	if err != nil {
		return nil, fmt.Errorf("tokenizer %s: %w", path, err)
	}
	t, err := Parse(b)
	if err != nil {
		return nil, fmt.Errorf("tokenizer %s: %w", path, err)
	}
	return t, nil
}

// file is the part of a tokenizer.json that is looked at.
type file struct {
	AddedTokens   []addedToken     `json:"added_tokens"`
	Normalizer    *json.RawMessage `json:"normalizer"`
	PreTokenizer  *json.RawMessage `json:"pre_tokenizer"`
	PostProcessor *json.RawMessage `json:"post_processor"`
	Decoder       *json.RawMessage `json:"decoder"`
	Model         json.RawMessage  `json:"model"`
}

// Parse reads the content of a file.
func Parse(source []byte) (*Tokenizer, error) {
	var f file
	if err := json.Unmarshal(source, &f); err != nil {
		return nil, err
	}
	t := &Tokenizer{source: source, added: f.AddedTokens, special: map[int32]string{}}
	var err error
	if t.model, err = readModel(f.Model); err != nil {
		return nil, err
	}
	t.size = len(t.model.texts)
	for i, a := range t.added {
		if a.Content == "" || a.ID < 0 || a.ID >= maxTokens {
			return nil, fmt.Errorf("added token %d has the text %q and the number %d", i, a.Content, a.ID)
		}
		t.special[a.ID] = a.Content
		t.size = max(t.size, int(a.ID)+1)
	}
	if t.normalize, err = readNormalizer(f.Normalizer); err != nil {
		return nil, err
	}
	if t.split, err = readSplitter(f.PreTokenizer); err != nil {
		return nil, err
	}
	if t.decode, err = readDecoder(f.Decoder); err != nil {
		return nil, err
	}
	if t.begin, t.end, err = readTemplate(f.PostProcessor); err != nil {
		return nil, err
	}
	return t, nil
}

// Size is the number of tokens: one more than the greatest.
func (t *Tokenizer) Size() int { return t.size }

// Source is the content of the file.
func (t *Tokenizer) Source() []byte { return t.source }

// SHA256 is the checksum of the file, in hexadecimal digits.
func (t *Tokenizer) SHA256() string { return fmt.Sprintf("%x", sha256.Sum256(t.source)) }

// Begin and End are the tokens that the library puts around a text, such as the
// one that a text begins with.
func (t *Tokenizer) Begin() []int32 { return t.begin }

// End is what follows a text; see Begin.
func (t *Tokenizer) End() []int32 { return t.end }

// Encode turns text, which must be UTF-8, into tokens, without Begin and End. Added
// tokens such as <|endoftext|> are found in it.
func (t *Tokenizer) Encode(text string) ([]int32, error) {
	var tokens []int32
	first := true
	for text != "" {
		start, end, a := t.nextAdded(text)
		var err error
		if tokens, err = t.encodePlain(tokens, text[:start], first); err != nil {
			return nil, err
		}
		if a != nil {
			tokens = append(tokens, a.ID)
		}
		text, first = text[end:], false
	}
	return tokens, nil
}

// encodePlain adds the tokens of a text without added tokens; first is the
// beginning of the whole.
func (t *Tokenizer) encodePlain(tokens []int32, text string, first bool) ([]int32, error) {
	if text == "" {
		return tokens, nil
	}
	for _, n := range t.normalize {
		text = n(text)
	}
	pieces := []string{text}
	for _, s := range t.split {
		var next []string
		for i, p := range pieces {
			list, err := s(p, first && i == 0)
			if err != nil {
				return nil, err
			}
			next = append(next, list...)
		}
		pieces = next
	}
	for _, p := range pieces {
		tokens = t.model.encode(tokens, p)
	}
	return tokens, nil
}

// Decode turns tokens into text, added tokens included. Bytes that make no UTF-8
// are kept as they are.
func (t *Tokenizer) Decode(tokens []int32) (string, error) {
	parts := make([]string, 0, len(tokens))
	for i, id := range tokens {
		text, ok := t.special[id]
		if !ok {
			if id < 0 || int(id) >= len(t.model.texts) || t.model.texts[id] == "" {
				if id >= 0 && int(id) < t.size {
					continue // a number that no text has
				}
				return "", fmt.Errorf("token %d at position %d is outside the vocabulary of %d", id, i, t.size)
			}
			text = t.model.texts[id]
		}
		parts = append(parts, text)
	}
	for _, d := range t.decode {
		parts = d(parts)
	}
	return strings.Join(parts, ""), nil
}

// addedToken is a token that is found in a text before anything else.
type addedToken struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
}

// nextAdded is the first added token of a text, the longest of those that begin
// there, with the white space that it takes; nil and the end without any.
func (t *Tokenizer) nextAdded(text string) (start, end int, found *addedToken) {
	start = len(text)
	for i := range t.added {
		a := &t.added[i]
		at := a.find(text)
		if at >= 0 && (at < start || at == start && found != nil && len(a.Content) > len(found.Content)) {
			start, found = at, a
		}
	}
	if found == nil {
		return len(text), len(text), nil
	}
	end = start + len(found.Content)
	if found.LStrip {
		start = len(strings.TrimRight(text[:start], " \t\r\n"))
	}
	if found.RStrip {
		end = len(text) - len(strings.TrimLeft(text[end:], " \t\r\n"))
	}
	return start, end, found
}

// find is where a token first is in a text, on its own where it must be a word; -1
// if it is not there.
func (a *addedToken) find(text string) int {
	for from := 0; ; {
		at := strings.Index(text[from:], a.Content)
		if at < 0 {
			return -1
		}
		at += from
		if !a.SingleWord || !wordAt(text[:at], false) && !wordAt(text[at+len(a.Content):], true) {
			return at
		}
		from = at + len(a.Content)
	}
}

// wordAt reports whether a text begins, or ends, within a word.
func wordAt(text string, begins bool) bool {
	r, _ := utf8.DecodeLastRuneInString(text)
	if begins {
		r, _ = utf8.DecodeRuneInString(text)
	}
	return text != "" && isWord(r)
}
