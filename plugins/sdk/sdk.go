// Package sdk makes a program of stages that longship starts. The stages are
// written as those in process are, and the whole of the program is
//
//	func main() { sdk.Serve(mystage.Factory(), another.Factory()) }
//
// Only messages cross to a program (port.Sample, port.Step, port.Validation): a
// stage with a port of handles or loans has to stay in process. Tensors behind
// a cache.Ref are had by package tensors, since longship has the cache open.
//
// Log with Settings.Log: level and fields arrive in longship's log. Standard
// output belongs to the handshake; what is printed there is logged as such.
package sdk

import (
	"fmt"
	"io"
	"os"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"longship/pipeline"
	"longship/plugins/proto"
)

// Serve serves the stages until longship ends the program or is gone itself. It
// panics where two factories have one type, or one lacks something. Started by
// hand the program says what it is and exits with 1.
func Serve(factories ...pipeline.Factory) {
	reg, err := pipeline.NewRegistry(factories...)
	if err != nil {
		panic(fmt.Sprintf("sdk: %v", err))
	}
	stderr := os.Stderr // go-plugin puts another in its place
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig: proto.Handshake(),
		Plugins:         plugin.PluginSet{proto.Service: &proto.Plugin{Stages: &server{reg: reg, stderr: stderr}}},
		Logger:          hclog.New(&hclog.LoggerOptions{Name: "sdk", Level: hclog.Warn, Output: stderr, JSONFormat: true}),
		GRPCServer: func(opts []grpc.ServerOption) *grpc.Server {
			s := grpc.NewServer(append(opts, grpc.MaxRecvMsgSize(proto.MaxMessage), grpc.MaxSendMsgSize(proto.MaxMessage))...)
			go func() { // longship holds the other end until the program is to end
				_, _ = io.Copy(io.Discard, os.Stdin)
				s.Stop()
			}()
			return s
		},
	})
}
