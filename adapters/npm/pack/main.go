// Command pack makes the npm packages of parallelsandbox-mcp and prints the path of each tarball:
//
//	go run ./adapters/npm/pack -out dist [-version 0.3.0] [-platforms linux-x64,darwin-arm64]
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"

	"parallelsandbox/adapters/npm"
)

func main() {
	out := flag.String("out", "", "directory for the tarballs")
	version := flag.String("version", npm.Version, "version of the packages")
	platforms := flag.String("platforms", "", "comma list; default all")
	flag.Parse()
	if *out == "" || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	made, err := npm.Pack(ctx, npm.Options{
		Out: *out, Version: *version,
		Platforms: strings.FieldsFunc(*platforms, func(r rune) bool { return r == ',' }),
	})
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
	for _, path := range made {
		fmt.Println(path)
	}
}
