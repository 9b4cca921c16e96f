package train

import (
	"cmp"
	"context"
	"fmt"

	"github.com/tidemark-lab/tidemark/data"
	"github.com/tidemark-lab/tidemark/nn/models"
)

// DataSettings says what a model is trained on.
type DataSettings struct {
	// Kind is text, random-tokens, digits or teacher; see package data.
	Kind string `json:"kind"`
	// Path is the text's file.
	Path string `json:"path,omitempty"`
	// SHA256 is the checksum of the text that the training began with, so that
	// it goes on with no other; empty before the text is read.
	SHA256 string `json:"sha256,omitempty"`
	// Bytes takes the text as bytes instead of characters.
	Bytes bool `json:"bytes,omitempty"`
	// Validation is the part of the text that is held out; 0 is 0.1.
	Validation float64 `json:"validation,omitempty"`
	// Vocabulary is that of the text.
	Vocabulary *data.Vocabulary `json:"vocabulary,omitempty"`
}

// Sources are the batches of a training.
type Sources struct {
	Train data.Source
	// Validation is nil where there is nothing held out.
	Validation data.Source
	// Text is the text behind the batches, or nil.
	Text *data.Text
}

// OpenSources makes the batches that settings ask for. The text is read if it
// is not given; its vocabulary becomes part of the settings.
func (s *Settings) OpenSources(text *data.Text) (Sources, error) {
	switch s.Data.Kind {
	case "text":
		return s.textSources(text)
	case "random-tokens":
		v, err := s.vocabulary()
		if err != nil {
			return Sources{}, err
		}
		classes, err := models.ClassesOf(s.Model)
		if err != nil {
			return Sources{}, err
		}
		var src data.Source
		if classes > 0 {
			src, err = data.RandomLabels(v, classes, s.Batch, s.Tokens, s.Seed)
		} else {
			src, err = data.RandomTokens(v, s.Batch, s.Tokens, s.Seed)
		}
		return Sources{Train: src}, err
	case "digits":
		t, err := data.Digits(data.DigitsOptions{Seed: s.Seed, Split: data.Train, Batch: s.Batch})
		if err != nil {
			return Sources{}, err
		}
		v, err := data.Digits(data.DigitsOptions{Seed: s.Seed, Split: data.Validation, Batch: s.Batch, Samples: digitsHeldOut})
		return Sources{Train: t, Validation: v}, err
	case "teacher":
		features, outputs, err := models.Dense(s.Model)
		if err == nil && features == 0 {
			err = fmt.Errorf("a model of type %s takes tokens, not features", s.Model.Type())
		}
		if err != nil {
			return Sources{}, err
		}
		o := data.TeacherOptions{Seed: s.Seed, Batch: s.Batch, Features: features, Outputs: outputs}
		t, err := data.Teacher(o)
		if err != nil {
			return Sources{}, err
		}
		o.Split, o.Samples = data.Validation, digitsHeldOut
		v, err := data.Teacher(o)
		return Sources{Train: t, Validation: v}, err
	}
	return Sources{}, fmt.Errorf("data %q is not known: text, random-tokens, digits or teacher", s.Data.Kind)
}

// digitsHeldOut is how many held-out samples of a generated set are looked at.
const digitsHeldOut = 5000

// LoadText reads the settings' text, with their vocabulary if they have one. It
// ends when ctx does. A text with more different characters than maxTokens is
// refused when the first too many comes; 0 is no bound.
func (s *Settings) LoadText(ctx context.Context, maxTokens int) (*data.Text, error) {
	o := data.TextOptions{Vocabulary: s.Data.Vocabulary, Validation: s.Data.Validation, MaxTokens: maxTokens}
	if s.Data.Bytes && o.Vocabulary == nil {
		o.Vocabulary = data.Bytes()
	}
	return data.LoadText(ctx, s.Data.Path, o)
}

func (s *Settings) textSources(text *data.Text) (Sources, error) {
	if classes, err := models.ClassesOf(s.Model); err != nil || classes > 0 {
		return Sources{}, cmp.Or(err, fmt.Errorf("a model of type %s says of a whole row to which of %d classes it belongs: a text has no such labels; leave --data out for random ones", s.Model.Type(), classes))
	}
	if text == nil {
		var err error
		if text, err = s.LoadText(context.Background(), 0); err != nil {
			return Sources{}, err
		}
	}
	if s.Data.SHA256 != "" && s.Data.SHA256 != text.SHA256 {
		return Sources{}, fmt.Errorf("the text %s is not the one that the training began with: its SHA-256 checksum is %.16s…, not %.16s…",
			s.Data.Path, text.SHA256, s.Data.SHA256)
	}
	s.Data.Vocabulary, s.Data.SHA256 = text.Vocabulary, text.SHA256
	size, err := s.vocabulary()
	if err != nil {
		return Sources{}, err
	}
	if n := text.Vocabulary.Size(); n > size {
		return Sources{}, fmt.Errorf("the text has %d different tokens, the model's vocabulary %d: use a model with vocab_size %d or more", n, size, n)
	}
	t, err := text.Windows(data.Train, s.Batch, s.Tokens, s.Seed)
	if err != nil {
		return Sources{}, err
	}
	v, err := text.Sequential(data.Validation, s.Batch, s.Tokens)
	if err != nil {
		return Sources{}, err
	}
	return Sources{Train: t, Validation: v, Text: text}, nil
}

// vocabulary is the model's number of tokens.
func (s *Settings) vocabulary() (int, error) {
	_, vocabulary, _, err := models.Sizes(s.Model)
	return vocabulary, err
}
