package sdk

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/hashicorp/go-hclog"
	"gopkg.in/yaml.v3"

	"longship/pipeline"
	"longship/plugins/proto"
)

// server is the program's end of the connection.
type server struct {
	proto.UnimplementedStagesServer
	reg    *pipeline.Registry
	stderr io.Writer
}

// Describe tells what stages there are.
func (s *server) Describe(context.Context, *proto.DescribeRequest) (*proto.DescribeResponse, error) {
	res := &proto.DescribeResponse{}
	for _, f := range s.reg.Factories() {
		cfg := f.Default()
		defaults, err := yaml.Marshal(cfg)
		if err != nil {
			return nil, fmt.Errorf("defaults of stage %s: %w", f.Type, err)
		}
		keys, err := keysOf(cfg)
		if err != nil {
			return nil, fmt.Errorf("stage %s: %w", f.Type, err)
		}
		spec := &proto.StageSpec{Type: f.Type, Summary: f.Summary, Keys: keys, Defaults: defaults, Checks: true}
		if stage, err := f.New(pipeline.Settings{ID: f.Type, Log: hclog.NewNullLogger(), Env: &pipeline.Env{}}, cfg); err == nil {
			_, spec.Checks = stage.(pipeline.Checker)
			spec.Ports = portsOf(stage)
		}
		res.Stages = append(res.Stages, spec)
	}
	return res, nil
}

// portsOf describes the ports of a stage.
func portsOf(s pipeline.Stage) (ports []*proto.Port) {
	for _, p := range pipeline.Describe(s) {
		ports = append(ports, &proto.Port{
			Name: p.Name, Direction: p.Direction, Type: p.Type, MessageType: p.MessageType,
			Needs: p.Needs, Adds: p.Adds, Forwards: p.Forwards, Optional: p.Optional, Single: p.Single,
		})
	}
	return ports
}

// Make makes a stage and says what is wrong with its config.
func (s *server) Make(ctx context.Context, req *proto.MakeRequest) (*proto.MakeResponse, error) {
	env, err := proto.UnmarshalEnv(req.Env)
	if err != nil {
		return nil, err
	}
	res := &proto.MakeResponse{}
	log := s.logger(req.Id, "warn")
	stage, err := s.make(pipeline.Settings{ID: req.Id, Log: log, Env: env}, req.Type, req.Config)
	if err != nil {
		res.Faults = faultsOf(err)
		return res, nil
	}
	res.Ports = portsOf(stage)
	if c, ok := stage.(pipeline.Checker); ok && req.Check {
		found, err := pipeline.CheckDetached(hclog.WithContext(ctx, log), env, c)
		res.Faults = faultsOf(err)
		for _, e := range found {
			value, err := pipeline.Marshal(e.Value)
			if err != nil {
				return nil, err
			}
			res.Summary = append(res.Summary, &proto.SummaryLine{Key: e.Key, Value: value})
		}
	}
	return res, nil
}

// make makes the stage of a config that longship has read.
func (s *server) make(set pipeline.Settings, typ string, config []byte) (pipeline.Stage, error) {
	f, ok := s.reg.Lookup(typ)
	if !ok {
		return nil, fmt.Errorf("the program has no stage %q", typ)
	}
	cfg := f.Default()
	if err := pipeline.DecodeConfig(config, cfg); err != nil {
		return nil, err
	}
	if v, ok := cfg.(pipeline.Validator); ok {
		if err := v.Validate(); err != nil {
			return nil, err
		}
	}
	return f.New(set, cfg)
}

func (s *server) logger(name, level string) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{Name: name, Level: hclog.LevelFromString(level), Output: s.stderr, JSONFormat: true})
}

// faultsOf takes apart what errors.Join joined.
func faultsOf(err error) (faults []*proto.Fault) {
	if err == nil {
		return nil
	}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		if whole := errors.Join(many.Unwrap()...); whole != nil && whole.Error() == err.Error() {
			for _, e := range many.Unwrap() {
				faults = append(faults, faultsOf(e)...)
			}
			return faults
		}
	}
	f := &proto.Fault{Text: err.Error()}
	if fe := (*pipeline.FieldError)(nil); errors.As(err, &fe) {
		f.Key = fe.Path
	}
	if he := (*pipeline.HeadError)(nil); errors.As(err, &he) {
		f.HeadKey = he.Path
	}
	return []*proto.Fault{f}
}
