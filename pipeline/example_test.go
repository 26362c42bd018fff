package pipeline_test

import (
	"context"
	"fmt"

	"longship/pipeline"
)

// word travels as a message, since it says so.
type word struct{ Text string }

func (word) MessageType() string { return "word" }

// A source: what it emits is in its config.
type sayConfig struct {
	Words []string `yaml:"words" doc:"what to say"`
}

type say struct {
	cfg *sayConfig
	out *pipeline.Out[word]
}

func (s *say) Ports() []pipeline.Port { return []pipeline.Port{s.out} }

func (s *say) Run(ctx context.Context) error {
	for _, w := range s.cfg.Words {
		if err := s.out.Send(ctx, word{w}); err != nil {
			return err
		}
	}
	return nil
}

func sayFactory() pipeline.Factory {
	return pipeline.Factory{
		Type: "say", Summary: "says words",
		Default: func() any { return &sayConfig{} },
		New: func(_ pipeline.Settings, cfg any) (pipeline.Stage, error) {
			return &say{cfg.(*sayConfig), pipeline.NewOut[word]("words")}, nil
		},
	}
}

// A sink: it prints what it gets.
type hearConfig struct {
	Mark string `yaml:"mark" doc:"what to print after each word"`
}

type hear struct {
	set pipeline.Settings
	cfg *hearConfig
	in  *pipeline.In[word]
}

func (s *hear) Ports() []pipeline.Port { return []pipeline.Port{s.in} }

func (s *hear) Run(ctx context.Context) error {
	return pipeline.Each(ctx, s.set, s.in, func(_ context.Context, w word) error {
		fmt.Println(w.Text + s.cfg.Mark)
		return nil
	})
}

func hearFactory() pipeline.Factory {
	return pipeline.Factory{
		Type: "hear", Summary: "prints words",
		Default: func() any { return &hearConfig{Mark: "!"} },
		New: func(set pipeline.Settings, cfg any) (pipeline.Stage, error) {
			return &hear{set, cfg.(*hearConfig), pipeline.NewIn[word]("words")}, nil
		},
	}
}

// Two stages of one's own, composed in YAML.
func ExampleRegistry_Parse() {
	reg, err := pipeline.NewRegistry(sayFactory(), hearFactory())
	if err != nil {
		fmt.Println(err)
		return
	}
	p, err := reg.Parse([]byte(`
stages:
  - say: {words: [hello, world]}
  - hear
`), pipeline.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := p.Run(context.Background(), pipeline.RunOptions{}); err != nil {
		fmt.Println(err)
	}
	// Output:
	// hello!
	// world!
}

// The same in Go, with two sources merged in the order that In names.
func ExampleCompose() {
	p, err := pipeline.Compose(&pipeline.Env{Name: "greeting"}, nil,
		pipeline.Part{Factory: sayFactory(), ID: "first", Config: &sayConfig{Words: []string{"hello"}}},
		pipeline.Part{Factory: sayFactory(), ID: "second", Config: &sayConfig{Words: []string{"world"}}},
		pipeline.Part{Factory: hearFactory(), In: map[string][]string{"words": {"second", "first"}}},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := p.Run(context.Background(), pipeline.RunOptions{}); err != nil {
		fmt.Println(err)
	}
	// Output:
	// world!
	// hello!
}

// What is wrong is said all at once, each fault at its place.
func ExampleConfigError() {
	reg, _ := pipeline.NewRegistry(sayFactory(), hearFactory())
	_, err := reg.Parse([]byte(`
stages:
  - say: {word: [hello]}
  - say: {id: more}
  - hear: {mark: [1], in: mroe}
`), pipeline.Options{File: "greeting.yaml"})
	fmt.Println(err)
	// Output:
	// greeting.yaml:3:11: unknown key "word"; did you mean "words"?
	// greeting.yaml:5:18: mark: expected a text, not a list
	// greeting.yaml:5:27: in: there is no earlier stage "mroe"; did you mean "more"?
}
