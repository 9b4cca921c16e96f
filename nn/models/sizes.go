package models

import "fmt"

// Sizes says what a model takes: the longest sequence and the vocabulary of a
// language model, or the number of features of a dense net.
func Sizes(c Config) (context, vocabulary, features int, err error) {
	m, err := New(c)
	if err != nil {
		return 0, 0, 0, err
	}
	switch m := m.(type) {
	case *MLP:
		return 0, 0, m.Dims[0], nil
	case *GPT:
		return m.Config.Context, m.Config.Vocabulary, 0, nil
	case *causalLM:
		return m.context, m.vocabulary, 0, nil
	}
	return 0, 0, 0, fmt.Errorf("sizes of a %s are not known", m.Type())
}
