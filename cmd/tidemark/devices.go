package main

import (
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/device/catalog"
	"github.com/tidemark-lab/tidemark/device/precision"
)

// chosen is the device that the command line asked for.
type chosen struct {
	catalog.Choice
	// config are the allocator's settings that the command line gave, and with
	// opens the device with others.
	config alloc.Config
	with   func(alloc.Config) (device.Device, error)
	// conf is the text of config, and sources says where the settings came from.
	conf      string
	sources   map[string]string
	precision precision.Precision
}

// open opens the device with the settings that the command line gave.
func (c chosen) open() (device.Device, error) { return c.with(c.config) }

func deviceFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "device", Value: catalog.Auto, Usage: catalog.Usage() + ", or " + catalog.Auto + ": a GPU when there is one, else meta"},
		allocConfFlag(),
		&cli.StringFlag{Name: "precision", Value: string(precision.FP32), Usage: precision.Usage() + " (only predicted); a saved training has its own"},
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
	chosen.conf, chosen.sources = conf, settingSources(c, source)
	return chosen, err
}

// chooseKind reads --device and --precision.
func chooseKind(c *cli.Context, config alloc.Config) (chosen, error) {
	o := catalog.Options{Alloc: config}
	p, err := precision.Parse(c.String("precision"))
	if err == nil {
		err = p.Trained()
	}
	if err != nil {
		return chosen{}, fmt.Errorf("--%w", err)
	}
	o.Products = p.Products()
	if os.Getenv("TIDEMARK_PROFILE") != "" {
		o.Profile = os.Stderr
	}
	choice, err := catalog.Find(c.String("device"))
	if err != nil {
		return chosen{}, err
	}
	if o.Products != precision.Exact && !choice.RoundsProducts {
		why := fmt.Sprintf("the device %s computes in the type of its tensors", choice.Kind)
		if choice.Note != "" {
			why = choice.Note
		}
		return chosen{}, fmt.Errorf("--precision %v: only a GPU has it; %s", p, why)
	}
	return chosen{Choice: choice, precision: p, config: config, with: func(c alloc.Config) (device.Device, error) {
		o := o
		o.Alloc = c
		return choice.Open(o)
	}}, nil
}

// workspaceBytes is what the command line gives the matrix library to keep:
// unless it says otherwise, what the library of the device works best in.
func workspaceBytes(c *cli.Context, on catalog.Row) int64 {
	if on.OwnWorkspace && !c.IsSet("workspace-bytes") {
		return on.WorkspaceBytes
	}
	return c.Int64("workspace-bytes")
}
