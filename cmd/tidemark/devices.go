package main

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
)

// chosen is the device that the command line asked for.
type chosen struct {
	kind string
	note string // why, when it was not asked for by name
	open func() (device.Device, error)
}

func deviceFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "device", Value: "auto", Usage: "meta, cpu, cuda, cuda:N, or auto: cuda when there is a GPU, else meta"},
		&cli.StringFlag{Name: "alloc-conf", Usage: "allocator settings as in PYTORCH_CUDA_ALLOC_CONF"},
		&cli.Int64Flag{Name: "limit-bytes", Usage: "most bytes that the allocator may reserve; 0 for no limit"},
	}
}

// chooseDevice reads the flags of deviceFlags.
func chooseDevice(c *cli.Context) (chosen, error) {
	config, err := alloc.ParseConfig(c.String("alloc-conf"))
	if err != nil {
		return chosen{}, fmt.Errorf("--alloc-conf: %w", err)
	}
	if config.LimitBytes = c.Int64("limit-bytes"); config.LimitBytes < 0 {
		return chosen{}, fmt.Errorf("--limit-bytes %d: it must not be negative", config.LimitBytes)
	}
	meta := func() (device.Device, error) { return device.NewMeta(config), nil }
	name := c.String("device")
	switch {
	case name == "auto":
		if _, err := openCUDA(0, config); err != nil {
			return chosen{"meta", "auto chose meta, because " + err.Error(), meta}, nil
		}
		return chosen{"cuda", "auto chose the first GPU", func() (device.Device, error) { return openCUDA(0, config) }}, nil
	case name == "meta":
		return chosen{"meta", "", meta}, nil
	case name == "cpu":
		return chosen{"cpu", "", func() (device.Device, error) { return device.NewCPU(config), nil }}, nil
	case name == "cuda", strings.HasPrefix(name, "cuda:"):
		n := 0
		if rest, ok := strings.CutPrefix(name, "cuda:"); ok {
			if _, err := fmt.Sscanf(rest, "%d", &n); err != nil || n < 0 || fmt.Sprint(n) != rest {
				return chosen{}, fmt.Errorf("device %q: after cuda: comes the number of a GPU, such as cuda:0", name)
			}
		}
		return chosen{"cuda", "", func() (device.Device, error) { return openCUDA(n, config) }}, nil
	}
	return chosen{}, fmt.Errorf("unknown device %q: there is auto, meta, cpu, cuda and cuda:N", name)
}
