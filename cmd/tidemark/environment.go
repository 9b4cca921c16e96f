package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/catalog"
	"github.com/tidemark-lab/tidemark/device/cuda"
	"github.com/tidemark-lab/tidemark/instrument/report"
	"github.com/tidemark-lab/tidemark/instrument/show"
)

func environmentCommand() *cli.Command {
	return &cli.Command{
		Name:  "environment",
		Usage: "describe a GPU, its driver and libraries, and how its memory is spent",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "device", Value: "cuda:0", Usage: "cuda or cuda:N"},
			allocConfFlag(),
			&cli.BoolFlag{Name: "json", Usage: "print JSON"},
		},
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return fmt.Errorf("environment takes no arguments, got %q", c.Args().First())
			}
			return describeEnvironment(c)
		},
	}
}

// environment is what the command prints.
type environment struct {
	Tidemark string `json:"tidemark"`
	cuda.Environment
	Allocator report.AllocatorSettings `json:"allocator"`
	// AllocatorSource is where the allocator's settings came from: flag, default
	// or an environment variable.
	AllocatorSource string `json:"allocator_source"`
}

func describeEnvironment(c *cli.Context) error {
	conf, source, config, err := allocConf(c)
	if err != nil {
		return err
	}
	chosen, err := catalog.Find(c.String("device"))
	if err != nil {
		return err
	}
	if !chosen.Numbered {
		return fmt.Errorf("device %q: there is %s, and %s:N with the number of a GPU", c.String("device"), device.KindCUDA, device.KindCUDA)
	}
	d, err := cuda.Open(chosen.Number, cuda.Options{Alloc: config})
	if err != nil {
		return err
	}
	e := environment{Tidemark: version, Allocator: report.NewAllocatorSettings(conf, d.Allocator().Config()), AllocatorSource: source}
	e.Environment, err = d.Environment()
	if err = errors.Join(err, d.Close()); err != nil {
		return err
	}
	if c.Bool("json") {
		out := json.NewEncoder(c.App.Writer)
		out.SetIndent("", "  ")
		return out.Encode(e)
	}
	return e.write(c.App.Writer)
}

const gib = 1 << 30

// write is the description as text.
func (e *environment) write(to io.Writer) error {
	t := show.Table{Headings: []string{"", ""}, Last: show.Whole}
	line := func(name, format string, args ...any) { t.Add(name, fmt.Sprintf(format, args...)) }
	known := func(s string) string {
		if s == "" {
			return "not known"
		}
		return s
	}
	line("tidemark", "%s", e.Tidemark)
	line("driver", "%s (runs CUDA up to %s)", known(e.Driver), e.CUDA)
	line("libraries", "cuBLAS %s, NVRTC %s", e.CUBLAS, e.NVRTC)
	for _, c := range e.Cards {
		mark := ""
		if c.Index == e.Card.Index {
			mark = "; described here"
		}
		line(fmt.Sprintf("cuda:%d", c.Index), "%s, compute capability %s, %d multiprocessors, %.2f GiB, %s%s", c.Name, c.Capability,
			c.Processors, float64(c.MemoryBytes)/gib, c.UUID, mark)
	}
	line("kernels", "compiled for %s, kept in %s", e.Architecture, e.KernelCache)
	conf := "defaults"
	if e.Allocator.AllocConf != "" {
		conf = e.Allocator.AllocConf
	}
	line("allocator", "%s (%s)", conf, e.AllocatorSource)
	m := e.Memory
	rest := fmt.Sprintf("%.3f context, libraries and other processes", float64(m.OtherBytes)/gib)
	if m.LibrariesBytes != nil {
		rest = fmt.Sprintf("%.3f context and libraries + %.3f other processes", float64(*m.LibrariesBytes)/gib,
			float64(*m.ProcessesBytes)/gib)
	}
	line("memory", "%.3f GiB used of %.3f, as the driver counts = %.3f reserved + %s", float64(m.UsedBytes)/gib,
		float64(m.TotalBytes)/gib, float64(m.ReservedBytes)/gib, rest)
	return t.Write(to)
}
