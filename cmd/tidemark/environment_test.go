//go:build !gpu

package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

// TestEnvironmentWithoutGPU checks the errors of a program without GPU support.
func TestEnvironmentWithoutGPU(t *testing.T) {
	for _, c := range []struct {
		args string
		code int
		text string
	}{
		{"environment", exitNoDevice, "-tags gpu"},
		{"environment --device cuda:1 --json", exitNoDevice, "cuda:1"},
		{"environment --device cpu", exitError, "there is cuda, and cuda:N"},
		{"environment --device cuda:-1", exitError, "the number of a GPU"},
		{"environment all", exitError, "takes no arguments"},
		{"run linear --device meta --precision tf32", exitError, "only a GPU has it"},
		{"run linear --device cuda --precision fp16", exitError, "it is fp32, tf32 or bf16"},
		{"run linear --device meta --precision bf16", exitError, "peak-shift have it"},
		{"run linear --device cuda", exitNoDevice, "-tags gpu"},
	} {
		var out, errors bytes.Buffer
		code := run(context.Background(), append([]string{"tidemark"}, strings.Fields(c.args)...), &out, &errors)
		if code != c.code || strings.Count(errors.String(), "\n") != 1 || !strings.Contains(errors.String(), c.text) || out.Len() > 0 {
			t.Errorf("%s: status %d, %q and %q; want status %d and one line with %q", c.args, code, out.String(), errors.String(), c.code, c.text)
		}
	}
}
