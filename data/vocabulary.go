package data

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxCharacters bounds a vocabulary so that a token fits 16 bits.
const maxCharacters = 1 << 16

// Vocabulary maps text to tokens and back. A token is a character, numbered in
// the order of code points, or, in the zero value, a byte.
type Vocabulary struct {
	characters []rune // sorted; nil: bytes
	index      map[rune]int32
}

// Bytes is the vocabulary of the 256 bytes. It takes any file.
func Bytes() *Vocabulary { return &Vocabulary{} }

// Characters is the vocabulary of the characters of a text, which must be
// UTF-8 and not empty.
func Characters(text string) (*Vocabulary, error) {
	seen := map[rune]bool{}
	for i, r := range text {
		if r == utf8.RuneError {
			if _, size := utf8.DecodeRuneInString(text[i:]); size == 1 {
				return nil, notUTF8(text[i], position(text, i))
			}
		}
		seen[r] = true
		if len(seen) > maxCharacters {
			return nil, fmt.Errorf("has more than %d different characters; take bytes instead", maxCharacters)
		}
	}
	if len(seen) == 0 {
		return nil, errors.New("is empty")
	}
	characters := make([]rune, 0, len(seen))
	for r := range seen {
		characters = append(characters, r)
	}
	slices.Sort(characters)
	return newCharacters(characters), nil
}

func newCharacters(sorted []rune) *Vocabulary {
	v := &Vocabulary{characters: sorted, index: make(map[rune]int32, len(sorted))}
	for i, r := range sorted {
		v.index[r] = int32(i)
	}
	return v
}

// Size is the number of tokens.
func (v *Vocabulary) Size() int {
	if v.characters == nil {
		return 256
	}
	return len(v.characters)
}

// String is, for example, "65 characters" or "256 bytes".
func (v *Vocabulary) String() string {
	if v.characters == nil {
		return "256 bytes"
	}
	return fmt.Sprintf("%d characters", len(v.characters))
}

// Encode turns text into tokens. A character that the vocabulary lacks is an
// error that says which and where.
func (v *Vocabulary) Encode(text string) ([]int32, error) {
	tokens := make([]int32, 0, len(text))
	err := v.encode(text, func(token int32) { tokens = append(tokens, token) })
	if err != nil {
		return nil, err
	}
	return tokens, nil
}

func (v *Vocabulary) encode(text string, put func(token int32)) error {
	if v.characters == nil {
		for i := range len(text) {
			put(int32(text[i]))
		}
		return nil
	}
	for i, r := range text {
		token, ok := v.index[r]
		if r == utf8.RuneError {
			if _, size := utf8.DecodeRuneInString(text[i:]); size == 1 {
				return notUTF8(text[i], position(text, i))
			}
		}
		if !ok {
			return notInVocabulary(r, position(text, i), v)
		}
		put(token)
	}
	return nil
}

// Decode turns tokens into text. Bytes that make no UTF-8 are kept as they are.
func (v *Vocabulary) Decode(tokens []int32) (string, error) {
	var b strings.Builder
	for i, t := range tokens {
		switch {
		case t < 0 || int(t) >= v.Size():
			return "", fmt.Errorf("token %d at position %d is outside the vocabulary of %v", t, i, v)
		case v.characters == nil:
			b.WriteByte(byte(t))
		default:
			b.WriteRune(v.characters[t])
		}
	}
	return b.String(), nil
}

// sample shows the vocabulary's ends in an error.
func (v *Vocabulary) sample() string {
	const few = 16
	if len(v.characters) <= 2*few {
		return fmt.Sprintf("%q", string(v.characters))
	}
	return fmt.Sprintf("%q to %q", string(v.characters[:few]), string(v.characters[len(v.characters)-few:]))
}

// position is line, column (in characters) and byte of text[i], all from 1 but
// the byte, which is an offset.
func position(text string, i int) string {
	line := strings.Count(text[:i], "\n") + 1
	start := strings.LastIndexByte(text[:i], '\n') + 1
	return fmt.Sprintf("line %d, column %d (byte %d)", line, utf8.RuneCountInString(text[start:i])+1, i)
}

func notUTF8(b byte, at string) error {
	return fmt.Errorf("byte %#02x at %s is not UTF-8 text; take bytes instead of characters", b, at)
}

func notInVocabulary(r rune, at string, v *Vocabulary) error {
	return fmt.Errorf("character %q (%U) at %s is not among the %v of the vocabulary (%s)", r, r, at, v, v.sample())
}

// vocabularyJSON is how a vocabulary is saved.
type vocabularyJSON struct {
	Kind       string `json:"kind"`
	Size       int    `json:"size"`
	Characters string `json:"characters,omitempty"`
}

// MarshalJSON gives {"kind": "characters", "size": n, "characters": "…"}, the
// characters in the order of their tokens, or {"kind": "bytes", "size": 256}.
func (v *Vocabulary) MarshalJSON() ([]byte, error) {
	if v.characters == nil {
		return json.Marshal(vocabularyJSON{Kind: "bytes", Size: 256})
	}
	return json.Marshal(vocabularyJSON{Kind: "characters", Size: v.Size(), Characters: string(v.characters)})
}

// UnmarshalJSON restores a vocabulary.
func (v *Vocabulary) UnmarshalJSON(text []byte) error {
	var j vocabularyJSON
	if err := json.Unmarshal(text, &j); err != nil {
		return fmt.Errorf("vocabulary: %w", err)
	}
	switch j.Kind {
	case "bytes":
		*v = Vocabulary{}
	case "characters":
		characters := []rune(j.Characters)
		if len(characters) == 0 || len(characters) > maxCharacters {
			return fmt.Errorf("vocabulary: has %d characters, want 1 to %d", len(characters), maxCharacters)
		}
		for i := 1; i < len(characters); i++ {
			if characters[i] <= characters[i-1] {
				return fmt.Errorf("vocabulary: character %q after %q is out of order", characters[i], characters[i-1])
			}
		}
		*v = *newCharacters(characters)
	default:
		return fmt.Errorf("vocabulary: kind is %q, want characters or bytes", j.Kind)
	}
	if j.Size != v.Size() {
		return fmt.Errorf("vocabulary: says %d tokens, has %d", j.Size, v.Size())
	}
	return nil
}
