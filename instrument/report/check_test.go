package report

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/instrument/show"
)

// TestNotJudged has a check that was not judged be neither pass nor fail, in
// text, in JSON and there and back.
func TestNotJudged(t *testing.T) {
	r := &Report{Tidemark: "1", Scenario: "x", Checks: []Check{{Name: "a", Holds: true, Expected: int64(1), Observed: int64(1)},
		{Name: "b", Claim: "It moves", NotJudged: "one batch size alone"}}}
	if !r.Holds() {
		t.Error("a check that was not judged fails the report")
	}
	var out bytes.Buffer
	if err := r.WriteText(&out, TextOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"OPEN  b: It moves", "not judged: one batch size alone", "1 of 2 checks hold, 1 was not judged"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
	b, err := json.Marshal(r.Checks)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), `"holds":true`) || !strings.Contains(string(b), `"holds":null`) || strings.Contains(string(b), `"holds":false`) {
		t.Errorf("as JSON: %s", b)
	}
	var back []Check
	if err := json.Unmarshal(b, &back); err != nil || back[0].Fails() || back[1].Fails() || back[1].Verdict() != "OPEN" || !back[0].Holds {
		t.Errorf("read again: %+v, %v", back, err)
	}
	c, err := Compare(r, r, "a", "b")
	if err != nil || c.Checks[1].A != nil || c.Checks[1].ANotJudged == "" {
		t.Errorf("compared: %+v, %v", c.Checks, err)
	}
}

// TestPercentOfNothing has no percentage stand beside next to nothing.
func TestPercentOfNothing(t *testing.T) {
	for _, c := range []struct {
		a, b int64
		want string
	}{{512, 11_330_404_864, show.Absent}, {0, 5, show.Absent}, {100, 150, "+50.0%"}, {100, 50, "-50.0%"}, {100, 1250, "×12.5"}, {100, 100, "0"}} {
		if got := percent(newChange(&c.a, &c.b).Percent); got != c.want {
			t.Errorf("from %d to %d: %q, want %q", c.a, c.b, got, c.want)
		}
	}
}
