// Package predict answers whether a training fits a card: it predicts the
// memory of a workload and of variations of it (package train does the
// predicting), and does the plain arithmetic of weights and key/value caches.
package predict

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Card is a graphics card.
type Card struct {
	Name string `json:"name"`
	// MemoryBytes is what the driver reports as its memory.
	MemoryBytes int64 `json:"memory_bytes"`
	// Source is where the size comes from; empty for a limit that was given.
	Source string `json:"source,omitempty"`
}

const (
	mib = 1 << 20
	gib = 1 << 30
)

// ContextBytes is what a CUDA context and its libraries' code take beside the
// allocator on a card of compute capability 9.0. It is assumed.
const ContextBytes = 600 * mib

// cardModel is a card as people name it.
type cardModel struct {
	model    string
	gb       int   // as its datasheet has it
	mib      int64 // as nvidia-smi reports it
	document string
}

// cardModels are sorted by memory. Drivers keep part of a card, and error
// correction takes part of some, so that what nvidia-smi reports is less than
// the datasheet's figure.
var cardModels = []cardModel{
	{"RTX 4060", 8, 8188, "GeForce RTX 4060 specifications"},
	{"RTX 5060", 8, 8151, "GeForce RTX 5060 specifications"},
	{"RTX 3060", 12, 12288, "GeForce RTX 3060 specifications"},
	{"RTX 4070", 12, 12282, "GeForce RTX 4070 specifications"},
	{"RTX 5070", 12, 12227, "GeForce RTX 5070 specifications"},
	{"T4", 16, 15360, "T4 datasheet; Colab's"},
	{"V100", 16, 16384, "V100 datasheet"},
	{"RTX 4080", 16, 16376, "GeForce RTX 4080 specifications"},
	{"RTX 5060 Ti", 16, 16311, "GeForce RTX 5060 Ti specifications"},
	{"RTX 5070 Ti", 16, 16303, "GeForce RTX 5070 Ti specifications"},
	{"RTX 5080", 16, 16303, "GeForce RTX 5080 specifications"},
	{"A10", 24, 23028, "A10 datasheet"},
	{"A10G", 24, 23028, "A10G datasheet; Amazon's G5"},
	{"L4", 24, 23034, "L4 datasheet; Colab's"},
	{"RTX 3090", 24, 24576, "GeForce RTX 3090 specifications"},
	{"RTX 4090", 24, 24564, "GeForce RTX 4090 specifications"},
	{"V100", 32, 32768, "V100 datasheet"},
	{"RTX 5090", 32, 32607, "GeForce RTX 5090 specifications"},
	{"A100", 40, 40960, "A100 datasheet; Colab's"},
	{"L40S", 48, 46068, "L40S datasheet"},
	{"RTX A6000", 48, 49140, "RTX A6000 datasheet"},
	{"A100", 80, 81920, "A100 80GB datasheet"},
	{"H100", 80, 81559, "H100 datasheet"},
	{"H200", 141, 143771, "H200 datasheet"},
	{"B200", 192, 183359, "DGX B200 datasheet"},
}

func (m cardModel) card() Card {
	return Card{Name: fmt.Sprintf("%s %d GB", m.model, m.gb), MemoryBytes: m.mib * mib,
		Source: fmt.Sprintf("%d GB: NVIDIA, %s; %d MiB: nvidia-smi", m.gb, m.document, m.mib)}
}

// Cards are common cards, by memory, as nvidia-smi reports it.
func Cards() []Card {
	list := make([]Card, len(cardModels))
	for i, m := range cardModels {
		list[i] = m.card()
	}
	return list
}

// Usable is what the allocator can have of a card: its memory less the
// context, which is assumed.
func (c Card) Usable() int64 { return max(c.MemoryBytes-ContextBytes, 0) }

// ErrNoCard says that a card is not among Cards.
var ErrNoCard = errors.New("not a card that is known")

// ErrAmbiguousCard says that a name is that of several of Cards.
var ErrAmbiguousCard = errors.New("it is the name of several cards")

// FindCard is the card of a name: the model with or without its maker's words
// and its memory, such as "L4", "rtx4090", "A100 40GB", "a100-80" or
// "NVIDIA A100-SXM4-80GB".
func FindCard(name string) (Card, error) {
	model, gb := cardName(name)
	var found []Card
	for _, m := range cardModels {
		own, _ := cardName(m.model)
		colab := slices.Equal(model, []string{"colab"}) && strings.HasSuffix(m.document, "Colab's")
		if (colab || slices.Equal(model, own)) && (gb == 0 || gb == m.gb) {
			found = append(found, m.card())
		}
	}
	switch len(found) {
	case 0:
		return Card{}, fmt.Errorf("%q is %w: there is %s; --limit-gib judges any other", name, ErrNoCard, cardNames(Cards()))
	case 1:
		return found[0], nil
	}
	return Card{}, fmt.Errorf("%q: %w: say %s", name, ErrAmbiguousCard, cardNames(found))
}

func cardNames(cards []Card) string {
	names := make([]string, len(cards))
	for i, c := range cards {
		names[i] = c.Name
	}
	return strings.Join(names, ", ")
}

// makersWords say nothing of which card it is.
var makersWords = []string{"nvidia", "geforce", "tesla", "rtx", "gpu", "gb", "gib", "g", "pcie", "sxm", "sxm2", "sxm3", "sxm4", "sxm5", "sxm6"}

// cardName takes a name apart: the words that make the model, and the memory
// in GB, or 0.
func cardName(name string) (model []string, gb int) {
	words := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	for i, w := range words {
		if rest, ok := strings.CutPrefix(w, "rtx"); ok {
			w = rest
		}
		memory := w
		for _, unit := range []string{"gib", "gb", "g"} {
			if n, ok := strings.CutSuffix(w, unit); ok {
				memory = n
				break
			}
		}
		n, err := strconv.Atoi(memory)
		switch {
		case w == "" || slices.Contains(makersWords, w):
		case err == nil && n < 1000 && i > 0: // a model's number has four digits, or a letter
			gb = n
		default:
			model = append(model, splitSuffix(w)...)
		}
	}
	if len(model) > 1 && model[0] == "colab" {
		model = model[1:]
	}
	return model, gb
}

// splitSuffix takes "5070ti" as "5070 ti".
func splitSuffix(w string) []string {
	if n, ok := strings.CutSuffix(w, "ti"); ok && n != "" {
		if _, err := strconv.Atoi(n); err == nil {
			return []string{n, "ti"}
		}
	}
	return []string{w}
}
