package shell

import (
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

func TestReorderArgs(t *testing.T) {
	commands := []*cli.Command{{
		Name: "snapshot",
		Subcommands: []*cli.Command{{
			Name: "replay", Aliases: []string{"r"},
			Flags: []cli.Flag{&cli.BoolFlag{Name: "json"}, &cli.Int64Flag{Name: "limit-bytes", Aliases: []string{"l"}}},
		}},
	}}
	for in, want := range map[string]string{
		"p":                                     "p",
		"p --help":                              "p --help",
		"p other a --json":                      "p other a --json",
		"p snapshot replay a --json":            "p snapshot replay --json a",
		"p snapshot r a --limit-bytes 5 --json": "p snapshot r --limit-bytes 5 --json a",
		"p snapshot replay a -l 5":              "p snapshot replay -l 5 a",
		"p snapshot replay a --limit-bytes=5 b": "p snapshot replay --limit-bytes=5 a b",
		"p snapshot replay a --limit-bytes":     "p snapshot replay --limit-bytes a",
		"p snapshot replay a --unknown b":       "p snapshot replay --unknown a b",
		"p snapshot replay a --limit-bytes -5":  "p snapshot replay --limit-bytes -5 a",
		"p snapshot replay --json -- -a --b":    "p snapshot replay --json -- -a --b",
		"p snapshot replay - --json":            "p snapshot replay --json -- -",
	} {
		if got := strings.Join(ReorderArgs(commands, strings.Fields(in)), " "); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}
