package main

import "github.com/urfave/cli/v2"

func snapshotCommand() *cli.Command { return &cli.Command{Name: "snapshot"} }
