package main

import (
	"os"

	"github.com/urfave/cli/v2"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/device/cuda"
)

// openCUDA opens a GPU; the error wraps device.ErrAbsent where there is none.
// With TIDEMARK_PROFILE set, the time that each kind of call took on the card is
// printed to standard error at the end.
func openCUDA(n int, config alloc.Config, precision cuda.Precision) (device.Device, error) {
	o := cuda.Options{Alloc: config, Precision: precision}
	if os.Getenv("TIDEMARK_PROFILE") != "" {
		o.Profile = os.Stderr
	}
	d, err := cuda.Open(n, o)
	if err != nil {
		return nil, err
	}
	return d, nil
}

// workspaceBytes is what the command line gives the matrix library to keep:
// unless it says otherwise, nothing on meta and cpu, and on a GPU what cuBLAS
// works best in.
func workspaceBytes(c *cli.Context, kind string) int64 {
	if kind == "cuda" && !c.IsSet("workspace-bytes") {
		return cuda.WorkspaceBytes
	}
	return c.Int64("workspace-bytes")
}
