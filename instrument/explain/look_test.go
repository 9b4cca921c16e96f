package explain

import (
	"fmt"
	"testing"

	"github.com/tidemark-lab/tidemark/instrument/snapshot"
)

func TestLook(t *testing.T) {
	for _, n := range []string{"train_smol", "leak_logits", "oom_batch", "generate_dynamic", "bert_amp"} {
		s, err := snapshot.ReadFile("testdata/" + n + ".pickle.gz")
		if err != nil {
			t.Fatal(err)
		}
		r, err := Explain(s, Options{Top: 12})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println(n, r.Peak.AllocatedBytes, r.PeakReserved.ReservedBytes, r.Peak.Phase, r.Peak.Event, r.Notes, r.Before)
		for k, v := range r.Peak.ByCategory {
			fmt.Println("   ", k, v)
		}
		for _, s := range r.Answer {
			fmt.Println("  *", s)
		}
		for _, f := range r.Findings {
			fmt.Println("  #", f.rank, f.Kind, f.Bytes, f.Line, f.Title)
			for _, x := range f.Evidence {
				fmt.Println("        ", x)
			}
		}
		for _, g := range r.Peak.ByLine {
			fmt.Println("      ", g.Bytes, g.Blocks, g.Line, g.Op, g.Category)
		}
		for _, g := range r.Peak.ByOperation {
			fmt.Println("      >", g.Bytes, g.Blocks, g.Line, g.Category)
		}
		for i, p := range r.Phases {
			if i < 30 {
				s := -1
				if p.Step != nil {
					s = *p.Step
				}
				fmt.Println("      p ", p.Phase, s, p.Event, p.Peak.AllocatedBytes, p.Peak.ByCategory)
			}
		}
	}
}
