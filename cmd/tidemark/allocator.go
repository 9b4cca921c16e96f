package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/instrument/report"
)

// allocVariables are the environment variables that PyTorch reads allocator
// settings from: the first that is set counts, the second is the older name.
var allocVariables = []string{"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"}

// allocConfFlag gives allocator settings, before the environment does.
func allocConfFlag() cli.Flag {
	return &cli.StringFlag{Name: "alloc-conf", Usage: "allocator settings as in PYTORCH_CUDA_ALLOC_CONF (default: " +
		strings.Join(allocVariables, ", else ") + ")"}
}

// allocConf reads --alloc-conf, or else the environment: the text, where it
// came from, and the settings. The error names the flag or the variable.
func allocConf(c *cli.Context) (text, source string, config alloc.Config, err error) {
	text, source = c.String("alloc-conf"), report.FromFlag
	name := "--alloc-conf"
	if !c.IsSet("alloc-conf") {
		source = report.FromDefault
		for _, variable := range allocVariables {
			if value, ok := os.LookupEnv(variable); ok {
				text, source, name = value, variable, variable
				break
			}
		}
	}
	if config, err = alloc.ParseConfig(text); err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return text, source, config, err
}

// notSettings are the flags that say what to do with a result, and change
// nothing of it.
var notSettings = map[string]bool{"all": true, "out": true, "force": true, "json": true, "bytes": true, "help": true, "save": true,
	"save-every": true, "resume": true, "workers": true, "from": true, "picture": true}

// settingSources says where each of a command's settings came from.
func settingSources(c *cli.Context, allocSource string) map[string]string {
	sources := map[string]string{}
	for _, f := range c.Command.Flags {
		name := f.Names()[0]
		switch {
		case notSettings[name]:
		case name == "alloc-conf":
			sources["alloc_conf"] = allocSource
		case c.IsSet(name):
			sources[settingKey(name)] = report.FromFlag
		default:
			sources[settingKey(name)] = report.FromDefault
		}
	}
	return sources
}

// settingKey is a flag's name as JSON has it.
func settingKey(flag string) string { return strings.ReplaceAll(flag, "-", "_") }

// settings are a report's settings: its own, those of the allocator as the
// device has it, and where all came from.
func (d chosen) settings(own any, effective alloc.Config) report.Settings {
	s := report.Settings{Own: own, Allocator: report.NewAllocatorSettings(d.conf, effective), Sources: d.sources}
	return s
}
