package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/tidemark-lab/tidemark/cmd/tidemark/shell"
)

// TestEmptyStrings gives every flag of every command that takes a text an empty
// one, as an unset variable of a shell does.
func TestEmptyStrings(t *testing.T) {
	dir := inFolder(t)
	var flags int
	var walk func(path []string, commands []*cli.Command)
	walk = func(path []string, commands []*cli.Command) {
		for _, command := range commands {
			path := append(append([]string(nil), path...), command.Name)
			for _, f := range command.Flags {
				if !f.(cli.DocGenerationFlag).TakesValue() {
					continue
				}
				flags++
				name := "--" + f.Names()[0]
				for _, given := range [][]string{{name, ""}, {name + "="}} {
					code, out, errs := tidemark(t, append(append([]string(nil), path...), given...)...)
					if code != shell.ExitError || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, strings.TrimPrefix(name, "-")) {
						t.Errorf("%s %q: status %d, %q, %q", strings.Join(path, " "), given, code, out, errs)
					}
				}
			}
			walk(path, command.Subcommands)
		}
	}
	walk(nil, newApp(&bytes.Buffer{}, &bytes.Buffer{}).Commands)
	if flags < 100 {
		t.Errorf("only %d flags were found", flags)
	}
	for _, args := range [][]string{{"compare", "", ""}, {"snapshot", "stat", ""}, {"snapshot", "replay", ""}, {"run", ""}, {"list", ""}} {
		if code, out, errs := tidemark(t, args...); code != shell.ExitError || out != "" || !strings.Contains(errs, "empty string") {
			t.Errorf("%q: status %d, %q, %q", args, code, out, errs)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
