//go:build !gpu

package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/cmd/tidemark/shell"
)

// TestEnvironmentWithoutGPU checks the errors of a program without GPU support.
func TestEnvironmentWithoutGPU(t *testing.T) {
	for _, c := range []struct {
		args string
		code int
		text string
	}{
		{"environment", shell.ExitNoDevice, "-tags gpu"},
		{"environment --device cuda:1 --json", shell.ExitNoDevice, "cuda:1"},
		{"environment --device cpu", shell.ExitError, "there is cuda, and cuda:N"},
		{"environment --device cuda:-1", shell.ExitError, "the number of a GPU"},
		{"environment all", shell.ExitError, "takes no arguments"},
		{"run linear --device meta --precision tf32", shell.ExitError, "only a GPU has it"},
		{"run linear --device cuda --precision fp16", shell.ExitError, "it is fp32, tf32, bf16-mixed or bf16"},
		{"run linear --device meta --precision bf16-mixed", shell.ExitError, "peak-shift have it"},
		{"run linear --device cuda", shell.ExitNoDevice, "-tags gpu"},
	} {
		var out, errors bytes.Buffer
		code := run(context.Background(), append([]string{"tidemark"}, strings.Fields(c.args)...), &out, &errors)
		if code != c.code || strings.Count(errors.String(), "\n") != 1 || !strings.Contains(errors.String(), c.text) || out.Len() > 0 {
			t.Errorf("%s: status %d, %q and %q; want status %d and one line with %q", c.args, code, out.String(), errors.String(), c.code, c.text)
		}
	}
}
