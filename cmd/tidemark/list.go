package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/tidemark-lab/tidemark/scenarios"
	"github.com/tidemark-lab/tidemark/scenarios/harness"
)

func listCommand() *cli.Command {
	return &cli.Command{
		Name:  "list",
		Usage: "list the scenarios and the claims they test",
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return fmt.Errorf("list takes no arguments, got %q", c.Args().First())
			}
			for _, s := range scenarios.All() {
				fmt.Fprintf(c.App.Writer, "%s\n    %s\n", s.Name, s.Title)
				for _, claim := range s.Claims {
					fmt.Fprintf(c.App.Writer, "    %-6s %s\n", claim.Source, claim.Text)
				}
			}
			fmt.Fprintln(c.App.Writer, "\nThe documents")
			for _, d := range harness.Documents() {
				fmt.Fprintf(c.App.Writer, "    %-6s %s\n", d.Number, d.Title)
			}
			return nil
		},
	}
}
