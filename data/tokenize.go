package data

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"unicode/utf8"
)

// tokenizer turns a text into tokens while it is read, so that no more of it is
// ever in memory than its tokens.
type tokenizer struct {
	vocabulary *Vocabulary // nil: the text's characters, numbered as they come
	most       int         // characters that the text may have
	tokens     []uint16
	characters []rune // those seen, where vocabulary is nil
	index      map[rune]int32
	ascii      [utf8.RuneSelf]int32 // index for the most common characters, from 1

	line, column int
	offset       int64
}

// at is where the text is read: line and column (in characters) from 1, and the
// byte from 0.
func (z *tokenizer) at() string {
	return fmt.Sprintf("line %d, column %d (byte %d)", z.line+1, z.column+1, z.offset)
}

// read takes the whole of a text and returns its SHA-256 checksum.
func (z *tokenizer) read(r io.Reader) (sum string, err error) {
	hash := sha256.New()
	in := bufio.NewReaderSize(io.TeeReader(r, hash), 1<<16)
	if z.vocabulary != nil {
		z.index = z.vocabulary.index
	} else {
		z.index = map[rune]int32{}
	}
	next := z.character
	if z.vocabulary != nil && z.vocabulary.characters == nil {
		next = z.byte
	}
	for err == nil {
		err = next(in)
	}
	if !errors.Is(err, io.EOF) {
		return "", err
	}
	if z.vocabulary == nil && len(z.tokens) > 0 {
		z.vocabulary = z.sort()
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

func (z *tokenizer) byte(in *bufio.Reader) error {
	b, err := in.ReadByte()
	if err == nil {
		z.tokens = append(z.tokens, uint16(b))
	}
	return err
}

func (z *tokenizer) character(in *bufio.Reader) error {
	r, size, err := in.ReadRune()
	if err != nil {
		return err
	}
	if r == utf8.RuneError && size == 1 {
		in.UnreadRune()
		b, _ := in.ReadByte()
		return notUTF8(b, z.at())
	}
	token := int32(-1)
	if r < utf8.RuneSelf && z.ascii[r] > 0 {
		token = z.ascii[r] - 1
	} else if token, err = z.lookup(r); err != nil {
		return err
	}
	z.tokens = append(z.tokens, uint16(token))
	z.offset += int64(size)
	z.column++
	if r == '\n' {
		z.line, z.column = z.line+1, 0
	}
	return nil
}

// lookup is the token of a character, a new one where the vocabulary is the
// text's.
func (z *tokenizer) lookup(r rune) (int32, error) {
	token, ok := z.index[r]
	if !ok {
		switch {
		case z.vocabulary != nil:
			return 0, notInVocabulary(r, z.at(), z.vocabulary)
		case len(z.characters) == maxCharacters:
			return 0, fmt.Errorf("has more than %d different characters; take bytes instead", maxCharacters)
		case z.most > 0 && len(z.characters) == z.most:
			return 0, fmt.Errorf("has more than the %d different characters that the model's vocabulary has (%q at %s is one more): use a model with a larger vocab_size",
				z.most, r, z.at())
		}
		token = int32(len(z.characters))
		z.index[r] = token
		z.characters = append(z.characters, r)
	}
	if r < utf8.RuneSelf {
		z.ascii[r] = token + 1
	}
	return token, nil
}

// sort numbers the characters in the order of code points.
func (z *tokenizer) sort() *Vocabulary {
	v := newCharacters(slices.Sorted(slices.Values(z.characters)))
	tokens := make([]uint16, len(z.characters))
	for i, r := range z.characters {
		tokens[i] = uint16(v.index[r])
	}
	for i, t := range z.tokens {
		z.tokens[i] = tokens[t]
	}
	return v
}

// until is a reader that ends with ctx's error.
type until struct {
	ctx context.Context
	r   io.Reader
}

func (u until) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.Read(p)
}
