package shell

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// ReorderArgs moves the flags of the command that args name to the front of
// its arguments, because package cli takes what follows the first argument
// that is no flag for arguments, too. args[0] is the program's name. After
// "--" nothing is a flag.
func ReorderArgs(commands []*cli.Command, args []string) []string {
	if len(args) == 0 {
		return args
	}
	var command *cli.Command
	at := 1
	for at < len(args) {
		i := slices.IndexFunc(commands, func(c *cli.Command) bool { return c.HasName(args[at]) })
		if i < 0 {
			break
		}
		command, commands = commands[i], commands[i].Subcommands
		at++
	}
	if command == nil {
		return args
	}
	var flags, rest []string
	for i := at; i < len(args); i++ {
		arg := args[i]
		switch {
		case arg == "--":
			rest = append(rest, args[i+1:]...)
			i = len(args)
		case len(arg) < 2 || arg[0] != '-':
			rest = append(rest, arg)
		default:
			flags = append(flags, arg)
			if takesValue(command, arg) && i+1 < len(args) {
				i++
				flags = append(flags, args[i])
			}
		}
	}
	if slices.ContainsFunc(rest, func(s string) bool { return strings.HasPrefix(s, "-") }) {
		flags = append(flags, "--")
	}
	return slices.Concat(args[:at], flags, rest)
}

// takesValue reports whether the argument after flag arg is its value.
func takesValue(c *cli.Command, arg string) bool {
	name := strings.TrimLeft(arg, "-")
	if strings.Contains(name, "=") {
		return false
	}
	for _, f := range c.Flags {
		if v, ok := f.(cli.DocGenerationFlag); ok && slices.Contains(f.Names(), name) {
			return v.TakesValue()
		}
	}
	return false
}
