// Package stages has the list of the stages that longship brings, and the
// command line over a list of stages: what main.go and a main.go of one's own call.
package stages

//go:generate go test . -run TestGenerated -update

import (
	"longship/internal/cli"
	"longship/pipeline"
	"longship/plugins/host"
	"longship/stages/cached"
	"longship/stages/checkpoint"
	"longship/stages/dataset"
	"longship/stages/latents"
	"longship/stages/prefetch"
	"longship/stages/quantize"
	"longship/stages/textembed"
	"longship/stages/train"
)

// Builtin returns the factories of every built-in stage, in the order of the
// stock pipeline.
func Builtin() []pipeline.Factory {
	return []pipeline.Factory{
		dataset.Factory(),
		cached.Factory(),
		latents.Factory(),
		textembed.Factory(),
		quantize.Factory(),
		prefetch.Factory(),
		train.Factory(),
		checkpoint.Factory(),
	}
}

// Main runs the command line with these stages and ends the process. A program
// of one's own adds to Builtin:
//
//	func main() { stages.Main(append(stages.Builtin(), mystage.Factory())...) }
func Main(factories ...pipeline.Factory) { cli.Main(&host.Host{}, factories...) }
