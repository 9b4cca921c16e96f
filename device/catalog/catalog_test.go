package catalog

import (
	"errors"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/cuda"
)

// Every row opens the kind of device that it says, where there is one.
func TestRows(t *testing.T) {
	for _, r := range rows {
		c, err := Find(r.Name)
		if err != nil {
			t.Fatal(err)
		}
		d, err := c.Open(Options{})
		if errors.Is(err, device.ErrAbsent) && r.BuildTag != "" {
			continue // a program without the tag, or a machine without a card
		}
		if err != nil {
			t.Fatal(err)
		}
		info := d.Info()
		if info.Kind != r.Kind {
			t.Errorf("%s opens %+v", r.Name, info.Kind)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if r.OwnWorkspace != (r.WorkspaceBytes > 0) {
			t.Errorf("%s: a workspace of %d bytes", r.Name, r.WorkspaceBytes)
		}
	}
}

func TestFind(t *testing.T) {
	for name, number := range map[string]int{"meta": 0, "cpu": 0, "cuda": 0, "cuda:0": 0, "cuda:17": 17} {
		c, err := Find(name)
		if err != nil || c.Number != number || !strings.HasPrefix(name, c.Name) || c.Note != "" {
			t.Errorf("%s is %+v, %v", name, c, err)
		}
	}
	for name, want := range map[string]string{
		"tpu":     "there is auto, meta, cpu, cuda, cuda:N",
		"cpu:1":   "unknown device",
		"":        "unknown device",
		"CUDA":    "unknown device",
		"cuda:":   "after cuda: comes the number",
		"cuda:-1": "after cuda: comes the number",
		"cuda:01": "after cuda: comes the number",
		"cuda:x":  "after cuda: comes the number",
	} {
		if _, err := Find(name); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: error %v, want one line with %q", name, err, want)
		}
	}
}

// Auto takes a GPU where there is one, and else says why not.
func TestAuto(t *testing.T) {
	c, err := Find(Auto)
	if err != nil {
		t.Fatal(err)
	}
	_, absent := cuda.Cards()
	want := "auto chose the first GPU"
	if absent != nil {
		want = "auto chose meta, because " + absent.Error()
	}
	if c.Note != want || c.Computes != (absent == nil) {
		t.Errorf("%q and %+v, want %q", c.Note, c.Kind, want)
	}
}
