package data

import (
	"slices"
	"testing"
)

func TestRandomLabels(t *testing.T) {
	const vocabulary, classes, rows, tokens = 17, 3, 8, 9
	src, err := RandomLabels(vocabulary, classes, rows, tokens, 5)
	if err != nil {
		t.Fatal(err)
	}
	ids, labels := make([]int, vocabulary), make([]int, classes)
	var b, again Batch
	for i := range 200 {
		if err := src.Batch(i, &b); err != nil {
			t.Fatal(err)
		}
		if len(b.Inputs) != rows*tokens || len(b.Targets) != rows || b.Count != rows || len(b.Features) != 0 {
			t.Fatalf("a batch of %d tokens and %d labels, of which %d count", len(b.Inputs), len(b.Targets), b.Count)
		}
		for _, n := range b.Inputs {
			ids[n]++
		}
		for _, n := range b.Targets {
			labels[n]++
		}
	}
	for what, counts := range map[string][]int{"token": ids, "label": labels} {
		total := 200 * rows
		if what == "token" {
			total *= tokens
		}
		for n, c := range counts {
			if want := total / len(counts); c < want*3/4 || c > want*5/4 {
				t.Errorf("%s %d came %d times, want about %d", what, n, c, want)
			}
		}
	}
	if err := src.Batch(199, &again); err != nil || !slices.Equal(again.Inputs, b.Inputs) || !slices.Equal(again.Targets, b.Targets) {
		t.Errorf("batch 199 came back different, %v", err)
	}
	_, err = RandomLabels(17, 0, 8, 9, 5)
	wantError(t, err, "number of outputs is 0")
	_, err = RandomLabels(0, 2, 8, 9, 5)
	wantError(t, err, "a vocabulary of 0 and 2 classes")
}
