package main

import (
	"errors"
	"fmt"
	"slices"

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
				name := f.Names()[0]
				var given []string
				switch f.(type) {
				case *cli.StringFlag:
					given = []string{c.String(name)}
				case *cli.StringSliceFlag:
					if given = c.StringSlice(name); c.IsSet(name) && len(given) == 0 { // which is what the library makes of an empty text
						given = []string{""}
					}
				case *cli.GenericFlag:
					if t, ok := c.Generic(name).(*texts); ok {
						given = *t
					}
				}
				if c.IsSet(name) && slices.Contains(given, "") {
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
