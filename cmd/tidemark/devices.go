package main

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/device/cuda"
)

// chosen is the device that the command line asked for.
type chosen struct {
	kind string
	note string // why, when it was not asked for by name
	// config are the allocator's settings that the command line gave, and with
	// opens the device with others.
	config alloc.Config
	with   func(alloc.Config) (device.Device, error)
	// conf is the text of config, and sources says where the settings came from.
	conf    string
	sources map[string]string
	// precision is fp32, tf32 or bf16.
	precision string
}

// mixed says that training is to be in mixed precision.
func (c chosen) mixed() bool { return c.precision == mixedPrecision }

// mixedPrecision is the value of --precision for bfloat16 activations over
// float32 weights; the others are the GPU's own.
const mixedPrecision = "bf16"

// open opens the device with the settings that the command line gave.
func (c chosen) open() (device.Device, error) { return c.with(c.config) }

func deviceFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "device", Value: "auto", Usage: "meta, cpu, cuda, cuda:N, or auto: cuda when there is a GPU, else meta"},
		allocConfFlag(),
		&cli.StringFlag{Name: "precision", Value: "fp32", Usage: "fp32; tf32: a GPU's products of float32 matrices round their operands to 11 bits; bf16: mixed precision, activations and products in bfloat16 over float32 weights (a saved training has its own)"},
		&cli.Int64Flag{Name: "limit-bytes", Usage: "most bytes that the allocator may reserve; 0 for no limit"},
	}
}

// chooseDevice reads the flags of deviceFlags.
func chooseDevice(c *cli.Context) (chosen, error) {
	conf, source, config, err := allocConf(c)
	if err != nil {
		return chosen{}, err
	}
	if config.LimitBytes = c.Int64("limit-bytes"); config.LimitBytes < 0 {
		return chosen{}, fmt.Errorf("--limit-bytes %d: it must not be negative", config.LimitBytes)
	}
	chosen, err := chooseKind(c, config)
	chosen.precision = c.String("precision")
	chosen.conf, chosen.sources = conf, settingSources(c, source)
	return chosen, err
}

// chooseKind reads --device and --precision.
func chooseKind(c *cli.Context, config alloc.Config) (chosen, error) {
	meta := func(c alloc.Config) (device.Device, error) { return device.NewMeta(c), nil }
	name := c.String("device")
	precision := cuda.FP32
	if p := c.String("precision"); p != mixedPrecision {
		var err error
		if precision, err = cuda.ParsePrecision(p); err != nil {
			return chosen{}, fmt.Errorf("--precision %q: it is fp32, tf32 or bf16", p)
		}
	}
	if precision != cuda.FP32 && (name == "meta" || name == "cpu") {
		return chosen{}, fmt.Errorf("--precision %v: only a GPU has it; the device %s computes in the type of its tensors", precision, name)
	}
	switch {
	case name == "auto":
		if _, err := cuda.Cards(); err != nil {
			if precision != cuda.FP32 {
				return chosen{}, fmt.Errorf("--precision %v: only a GPU has it: %w", precision, err)
			}
			return chosen{kind: "meta", note: "auto chose meta, because " + err.Error(), config: config, with: meta}, nil
		}
		return chosen{kind: "cuda", note: "auto chose the first GPU", config: config, with: func(c alloc.Config) (device.Device, error) { return openCUDA(0, c, precision) }}, nil
	case name == "meta":
		return chosen{kind: "meta", config: config, with: meta}, nil
	case name == "cpu":
		return chosen{kind: "cpu", config: config, with: func(c alloc.Config) (device.Device, error) { return device.NewCPU(c), nil }}, nil
	case name == "cuda", strings.HasPrefix(name, "cuda:"):
		n, err := cardNumber(name)
		if err != nil {
			return chosen{}, err
		}
		return chosen{kind: "cuda", config: config, with: func(c alloc.Config) (device.Device, error) { return openCUDA(n, c, precision) }}, nil
	}
	return chosen{}, fmt.Errorf("unknown device %q: there is auto, meta, cpu, cuda and cuda:N", name)
}
