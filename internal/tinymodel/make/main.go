// Command make writes the tiny model of the quickstart:
//
//	go run ./internal/tinymodel/make examples/quickstart/model
package main

import (
	"fmt"
	"os"

	"longship/internal/tinymodel"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: make FOLDER")
		os.Exit(2)
	}
	if err := tinymodel.Write(os.Args[1], tinymodel.Dev, tinymodel.Seed); err != nil {
		fmt.Fprintln(os.Stderr, "make:", err)
		os.Exit(1)
	}
}
