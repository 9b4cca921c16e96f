// Package predict says how much memory a training will take and whether it fits
// a card: it runs the plan of a workload, and of variations of it, on meta, in
// the composition of PyTorch or in ours, and does the plain arithmetic of weights
// and key/value caches.
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
	model string
	gb    int    // the nominal size, part of the name
	mib   int64  // as nvidia-smi reports it
	shown string // the card's name beside that figure in the output of nvidia-smi
	colab bool   // Colab has it
}

// cardModels are sorted by nominal memory. Drivers keep part of a card, and
// error correction takes part of some, so that nvidia-smi reports less than the
// nominal size. Its figures are from output that people have published: each was
// found beside the card's name in files on GitHub, none is from a datasheet. Of
// a V100 of 16 GB 16160 MiB are found as well.
var cardModels = []cardModel{
	{"RTX 4060", 8, 8188, "NVIDIA GeForce RTX 4060", false},
	{"RTX 5060", 8, 8151, "NVIDIA GeForce RTX 5060", false},
	{"RTX 3060", 12, 12288, "NVIDIA GeForce RTX 3060", false},
	{"RTX 4070", 12, 12282, "NVIDIA GeForce RTX 4070", false},
	{"RTX 5070", 12, 12227, "NVIDIA GeForce RTX 5070", false},
	{"T4", 16, 15360, "Tesla T4", true},
	{"V100", 16, 16384, "Tesla V100-SXM2-16GB", false},
	{"RTX 4080", 16, 16376, "NVIDIA GeForce RTX 4080", false},
	{"RTX 5060 Ti", 16, 16311, "NVIDIA GeForce RTX 5060 Ti", false},
	{"RTX 5070 Ti", 16, 16303, "NVIDIA GeForce RTX 5070 Ti", false},
	{"RTX 5080", 16, 16303, "NVIDIA GeForce RTX 5080", false},
	{"A10", 24, 23028, "NVIDIA A10", false},
	{"A10G", 24, 23028, "NVIDIA A10G", false},
	{"L4", 24, 23034, "NVIDIA L4", true},
	{"RTX 3090", 24, 24576, "NVIDIA GeForce RTX 3090", false},
	{"RTX 4090", 24, 24564, "NVIDIA GeForce RTX 4090", false},
	{"V100", 32, 32768, "Tesla V100-SXM2-32GB", false},
	{"RTX 5090", 32, 32607, "NVIDIA GeForce RTX 5090", false},
	{"A100", 40, 40960, "NVIDIA A100-SXM4-40GB", true},
	{"L40S", 48, 46068, "NVIDIA L40S", false},
	{"RTX A6000", 48, 49140, "NVIDIA RTX A6000", false},
	{"A100", 80, 81920, "NVIDIA A100 80GB PCIe", false},
	{"H100", 80, 81559, "NVIDIA H100 80GB HBM3", false},
	{"H200", 141, 143771, "NVIDIA H200", false},
	{"B200", 192, 183359, "NVIDIA B200", false},
}

func (m cardModel) card() Card {
	return Card{Name: fmt.Sprintf("%s %d GB", m.model, m.gb), MemoryBytes: m.mib * mib,
		Source: fmt.Sprintf("published output of nvidia-smi: %s, %d MiB", m.shown, m.mib)}
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
		colab := slices.Equal(model, []string{"colab"}) && m.colab
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
