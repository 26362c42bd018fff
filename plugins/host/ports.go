package host

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"longship/pipeline"
	"longship/plugins/proto"
	"longship/stages/port"
)

// input and output are the ports of a stage in a program, as the pipeline sees them.
type input struct {
	name string
	port pipeline.Port
	recv func(ctx context.Context) ([]byte, error)
	in   interface{ Connected() bool }
}

type output struct {
	name     string
	forwards string
	typ      string
	port     pipeline.Port
	send     func(ctx context.Context, payload []byte) error
}

// errLie is what a value is that is not what its port gives.
var errLie = errors.New("it was cut off: it sent what it may not send")

// conveyor makes the ports of one type of message.
type conveyor struct {
	in  func(name string, opts []pipeline.Option) input
	out func(name string, opts []pipeline.Option) output
}

// conveyors are the messages that cross to programs, by their MessageType.
var conveyors = map[string]conveyor{
	"sample": convey(func(s port.Sample) bool { return s.ID != "" }),
	"step":   convey(func(port.Step) bool { return true }), "validation": convey(func(port.Validation) bool { return true }),
}

func convey[T pipeline.Message](valid func(T) bool) conveyor {
	return conveyor{
		in: func(name string, opts []pipeline.Option) input {
			in := pipeline.NewIn[T](name, opts...)
			return input{name: name, port: in, in: in, recv: func(ctx context.Context) ([]byte, error) {
				v, err := in.Recv(ctx)
				if err != nil {
					return nil, err
				}
				return pipeline.Marshal(v)
			}}
		},
		out: func(name string, opts []pipeline.Option) output {
			out := pipeline.NewOut[T](name, opts...)
			return output{name: name, port: out, send: func(ctx context.Context, payload []byte) error {
				var v T
				if err := pipeline.Unmarshal(payload, &v); err != nil {
					return fmt.Errorf("%w: on output %s: %v", errLie, name, err)
				}
				if !valid(v) {
					return fmt.Errorf("%w: on output %s: a %s without an id", errLie, name, v.MessageType())
				}
				return out.Send(ctx, v)
			}}
		},
	}
}

// makePorts makes the ports that a program describes.
func makePorts(described []*proto.Port) (ports []pipeline.Port, ins []input, outs map[string]output, err error) {
	byName := map[string]pipeline.Port{}
	outs = map[string]output{}
	for _, p := range described {
		c, ok := conveyors[p.MessageType]
		if !ok || p.Direction != "in" && p.Direction != "out" {
			return nil, nil, nil, fmt.Errorf("port %s has values of type %s, which stay in one process: only sample, step and validation cross to a program", p.Name, strings.TrimPrefix(p.Type, "*"))
		}
		var opts []pipeline.Option
		if len(p.Needs) > 0 {
			opts = append(opts, pipeline.Needs(p.Needs...))
		}
		if len(p.Adds) > 0 {
			opts = append(opts, pipeline.Adds(p.Adds...))
		}
		if p.Optional {
			opts = append(opts, pipeline.Optional())
		}
		if p.Single {
			opts = append(opts, pipeline.Single())
		}
		if p.Forwards != "" {
			from, ok := byName[p.Forwards]
			if !ok {
				return nil, nil, nil, fmt.Errorf("output %s forwards %q, which is no input before it", p.Name, p.Forwards)
			}
			opts = append(opts, pipeline.Forwards(from))
		}
		if p.Direction == "in" {
			in := c.in(p.Name, opts)
			ins, ports, byName[p.Name] = append(ins, in), append(ports, in.port), in.port
			continue
		}
		out := c.out(p.Name, opts)
		out.forwards, out.typ = p.Forwards, p.MessageType
		outs[p.Name] = out
		ports = append(ports, out.port)
	}
	return ports, ins, outs, nil
}
