package main

import (
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"
)

// refuseEmpty has every command refuse flags and arguments that were given as
// an empty string: a variable of the shell that is not set is a mistake, and
// must not count as a flag that was left out.
func refuseEmpty(commands []*cli.Command) {
	for _, command := range commands {
		flags, subcommands := command.Flags, command.Subcommands
		command.Before = func(c *cli.Context) error {
			for _, f := range flags {
				if _, ok := f.(*cli.StringFlag); !ok {
					continue
				}
				if name := f.Names()[0]; c.IsSet(name) && c.String(name) == "" {
					return fmt.Errorf("--%s is given as an empty string (a variable that is not set?): give it a value, or leave it out", name)
				}
			}
			args := c.Args().Slice()
			if len(subcommands) > 0 { // what follows is the subcommand's
				args = args[:min(1, len(args))]
			}
			for _, a := range args {
				if a == "" {
					return errors.New("an argument is an empty string (a variable that is not set?): give it a value, or leave it out")
				}
			}
			return nil
		}
		refuseEmpty(command.Subcommands)
	}
}
