package proto

import (
	"context"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
)

// Version is the version of the protocol. A program of another version is refused.
const Version = 1

// MaxMessage bounds a message of the connection, in bytes, in both directions.
// What is larger goes through a cache.
const MaxMessage = 4 << 20

// MaxPayload bounds a value that a stage sends, in bytes of CBOR.
const MaxPayload = 1 << 20

// Service is the name that go-plugin knows the service by.
const Service = "stages"

// Handshake is what both ends agree on before they speak.
func Handshake() plugin.HandshakeConfig {
	return plugin.HandshakeConfig{ProtocolVersion: Version, MagicCookieKey: "LONGSHIP_PLUGIN", MagicCookieValue: "stages-of-ones-own"}
}

// Plugin connects the service to go-plugin. Stages is nil at the host's end.
type Plugin struct {
	plugin.NetRPCUnsupportedPlugin
	Stages StagesServer
}

var _ plugin.GRPCPlugin = (*Plugin)(nil)

// GRPCServer registers the service.
func (p *Plugin) GRPCServer(_ *plugin.GRPCBroker, s *grpc.Server) error {
	RegisterStagesServer(s, p.Stages)
	return nil
}

// GRPCClient returns a StagesClient.
func (p *Plugin) GRPCClient(_ context.Context, _ *plugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return NewStagesClient(conn), nil
}
