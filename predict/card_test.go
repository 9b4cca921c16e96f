package predict

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestFindCard(t *testing.T) {
	for name, want := range map[string]string{
		"L4": "L4 24 GB", "l40s": "L40S 48 GB", "A10": "A10 24 GB", "a10g": "A10G 24 GB", "T4": "T4 16 GB", "Tesla T4": "T4 16 GB",
		"4090": "RTX 4090 24 GB", "RTX 4090": "RTX 4090 24 GB", "rtx4090": "RTX 4090 24 GB", "NVIDIA GeForce RTX 4090": "RTX 4090 24 GB",
		"RTX 4090 24 GB": "RTX 4090 24 GB", "RTX-3060-12GB": "RTX 3060 12 GB", "5070": "RTX 5070 12 GB", "5070 Ti": "RTX 5070 Ti 16 GB",
		"rtx5070ti": "RTX 5070 Ti 16 GB", "A100 40GB": "A100 40 GB", "a100-80": "A100 80 GB", "A100-SXM4-80GB": "A100 80 GB",
		"NVIDIA A100 80GB PCIe": "A100 80 GB", "Tesla V100-SXM2-16GB": "V100 16 GB", "v100 32g": "V100 32 GB", "h100": "H100 80 GB",
		"H200": "H200 141 GB", "b200": "B200 192 GB", "A6000": "RTX A6000 48 GB", "RTX A6000": "RTX A6000 48 GB",
		"colab T4": "T4 16 GB", "Colab A100": "",
	} {
		c, err := FindCard(name)
		if want == "" {
			if !errors.Is(err, ErrAmbiguousCard) {
				t.Errorf("%s: %v, %v, want that it is ambiguous", name, c, err)
			}
			continue
		}
		if err != nil || c.Name != want || c.Usable() <= 0 || c.Source == "" {
			t.Errorf("%s is %v, %v, want %s", name, c, err, want)
		}
	}
	for name, choices := range map[string]string{"a100": "A100 40 GB, A100 80 GB", "V100": "V100 16 GB, V100 32 GB", "colab": "T4 16 GB, L4 24 GB, A100 40 GB"} {
		_, err := FindCard(name)
		if !errors.Is(err, ErrAmbiguousCard) || !strings.HasSuffix(err.Error(), choices) {
			t.Errorf("%s: %v, want the choices %s", name, err, choices)
		}
	}
	// Parts of names, and what only begins like a card.
	for _, name := range []string{"abacus", "4", "L", "A1", "00", "40", "RTX", "GB", "", " ", "A100 48", "4090 Laptop", "5090 Ti", "H100 NVL", "L40", "A1000", "RTX 6000", "16"} {
		_, err := FindCard(name)
		if !errors.Is(err, ErrNoCard) || !strings.Contains(err.Error(), "RTX 4060 8 GB") || !strings.Contains(err.Error(), "--limit-gib") {
			t.Errorf("%q: %v, want the list and --limit-gib", name, err)
		}
	}
}

// TestCards finds every card by its own name alone, and sorted by memory.
func TestCards(t *testing.T) {
	for i, m := range cardModels {
		c, err := FindCard(m.card().Name)
		if err != nil || c != m.card() {
			t.Errorf("%s finds %v, %v", m.card().Name, c, err)
		}
		if i > 0 && m.gb < cardModels[i-1].gb {
			t.Errorf("%s comes after a larger card", m.card().Name)
		}
		// The source is what the figure is from, with the card's own name.
		own, gb := cardName(m.card().Name)
		shown, shownGB := cardName(strings.TrimSuffix(m.shown, " HBM3"))
		if want := fmt.Sprintf("published output of nvidia-smi: %s, %d MiB", m.shown, m.mib); c.Source != want ||
			!slices.Equal(shown, own) || shownGB != 0 && shownGB != gb {
			t.Errorf("%s: the source is %q, want %q", m.card().Name, c.Source, want)
		}
		// What a driver reports is near the nominal size, never above 2^30 bytes for each GB.
		if m.mib > int64(m.gb)*1024 || m.mib < int64(m.gb)*920 {
			t.Errorf("%s has %d MiB", m.card().Name, m.mib)
		}
	}
}
