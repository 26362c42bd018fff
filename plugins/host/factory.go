package host

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"gopkg.in/yaml.v3"

	"longship/pipeline"
	"longship/plugins/proto"
)

// answerWithin is how long a program may take to describe or make stages.
const answerWithin = 30 * time.Second

// factories asks the program for its stages.
func (p *program) factories() ([]pipeline.Factory, error) {
	var res *proto.DescribeResponse
	err := p.ask(context.Background(), func(ctx context.Context, c proto.StagesClient) (err error) {
		res, err = c.Describe(ctx, &proto.DescribeRequest{})
		return err
	})
	if err != nil {
		return nil, err
	}
	var list []pipeline.Factory
	var errs []error
	for _, spec := range res.Stages {
		f, err := p.factory(spec)
		if err != nil {
			errs = append(errs, fmt.Errorf("program %s: stage %q: %w", p.name, spec.Type, err))
			continue
		}
		list = append(list, f)
	}
	return list, errors.Join(errs...)
}

// ask calls the program; an error says why, and ends with what it said last if
// it has died.
func (p *program) ask(ctx context.Context, call func(context.Context, proto.StagesClient) error) error {
	i, err := p.running()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	if err := call(ctx, i.stages); err != nil {
		select {
		case <-i.process.exited:
			return fmt.Errorf("program %s: %w", p.name, i.process.why())
		case <-time.After(100 * time.Millisecond):
		}
		return fmt.Errorf("program %s: %w", p.name, err)
	}
	return nil
}

// factory makes the factory of a stage of the program.
func (p *program) factory(spec *proto.StageSpec) (pipeline.Factory, error) {
	t, err := configType(spec.Keys, 0)
	if err != nil {
		return pipeline.Factory{}, err
	}
	if err := pipeline.DecodeConfig(spec.Defaults, reflect.New(t).Interface()); err != nil {
		return pipeline.Factory{}, fmt.Errorf("its defaults: %w", err)
	}
	f := pipeline.Factory{
		Type: spec.Type, Summary: spec.Summary,
		Default: func() any {
			cfg := reflect.New(t).Interface()
			_ = pipeline.DecodeConfig(spec.Defaults, cfg) // it was read above
			return cfg
		},
		New: func(set pipeline.Settings, cfg any) (pipeline.Stage, error) {
			s := &stage{prog: p, spec: spec, set: set, cfg: cfg}
			res, err := s.make(context.Background(), false)
			if err != nil {
				return nil, err
			}
			if s.ports, s.ins, s.outs, err = makePorts(res.Ports); err != nil {
				return nil, fmt.Errorf("program %s: %w", p.name, err)
			}
			if spec.Checks {
				return checked{s}, nil
			}
			return s, nil
		},
	}
	_, err = pipeline.NewRegistry(f)
	return f, err
}

// stage stands in the pipeline for a stage of a program.
type stage struct {
	prog  *program
	spec  *proto.StageSpec
	set   pipeline.Settings
	cfg   any
	ports []pipeline.Port
	ins   []input
	outs  map[string]output
}

func (s *stage) Ports() []pipeline.Port { return s.ports }

// request returns what makes the stage in the program.
func (s *stage) request() (*proto.MakeRequest, error) {
	config, err := yaml.Marshal(s.cfg)
	if err != nil {
		return nil, fmt.Errorf("write config: %w", err)
	}
	env, err := proto.MarshalEnv(s.set.Env)
	if err != nil {
		return nil, err
	}
	return &proto.MakeRequest{Type: s.spec.Type, Id: s.set.ID, Config: config, Env: env}, nil
}

// make has the program make the stage; its faults are the error.
func (s *stage) make(ctx context.Context, check bool) (res *proto.MakeResponse, err error) {
	req, err := s.request()
	if err != nil {
		return nil, err
	}
	req.Check = check
	if err := s.prog.ask(ctx, func(ctx context.Context, c proto.StagesClient) (err error) {
		res, err = c.Make(ctx, req)
		return err
	}); err != nil {
		return nil, err
	}
	var errs []error
	for _, f := range res.Faults {
		errs = append(errs, placed(f.Text, f.Key, f.HeadKey))
	}
	return res, errors.Join(errs...)
}

// checked is a stage that finds more faults before a run.
type checked struct{ *stage }

// Check has the program look for faults.
func (s checked) Check(ctx context.Context) error {
	res, err := s.make(ctx, true)
	if err != nil {
		return err
	}
	for _, line := range res.Summary {
		var v any
		if err := pipeline.Unmarshal(line.Value, &v); err != nil {
			return fmt.Errorf("program %s: %w", s.prog.name, err)
		}
		s.set.Summarise(line.Key, v)
	}
	return nil
}

// placedError is an error of the program's that has a place in the pipeline.
type placedError struct {
	text string
	at   error
}

func (e *placedError) Error() string { return e.text }
func (e *placedError) Unwrap() error { return e.at }

// placed makes an error of what a program says is wrong.
func placed(text, key, headKey string) error {
	switch {
	case headKey != "":
		return &placedError{text, &pipeline.HeadError{Path: headKey, Err: errors.New(text)}}
	case key != "":
		return &placedError{text, &pipeline.FieldError{Path: key, Msg: text}}
	}
	return errors.New(text)
}
