// Plugin-rpc is a program with a stage of its own: clean_captions tidies captions
// before they are encoded. Longship starts it when a pipeline names it.
//
//	go build -o cleaner ./examples/plugin-rpc
package main

import (
	"context"
	"errors"
	"regexp"
	"strings"

	"longship/pipeline"
	"longship/plugins/sdk"
	"longship/stages/port"
)

func main() { sdk.Serve(factory()) }

// config is what the user writes.
type config struct {
	Remove   []string `yaml:"remove" doc:"tags to leave out, as they stand between commas"`
	MaxWords int      `yaml:"max_words" doc:"words kept of a caption; 0 for all" jsonschema:"minimum=0"`
}

func (c *config) Validate() error {
	if c.MaxWords < 0 {
		return &pipeline.FieldError{Path: "max_words", Msg: "must be 0 or more"}
	}
	return nil
}

func factory() pipeline.Factory {
	return pipeline.Factory{
		Type: "clean_captions", Summary: "takes links, repeated tags and stray blanks out of captions",
		Default: func() any { return &config{Remove: []string{}} },
		New: func(set pipeline.Settings, cfg any) (pipeline.Stage, error) {
			in := pipeline.NewIn[port.Sample]("samples")
			return &cleaner{set, cfg.(*config), in, pipeline.NewOut[port.Sample]("cleaned", pipeline.Forwards(in))}, nil
		},
	}
}

type cleaner struct {
	set pipeline.Settings
	cfg *config
	in  *pipeline.In[port.Sample]
	out *pipeline.Out[port.Sample]
}

func (s *cleaner) Ports() []pipeline.Port { return []pipeline.Port{s.in, s.out} }

func (s *cleaner) Run(ctx context.Context) error {
	changed := 0
	defer func() { s.set.Summarise("captions changed", changed) }()
	return pipeline.Each(ctx, s.set, s.in, func(ctx context.Context, v port.Sample) error {
		text := s.clean(v.Caption)
		if text == "" {
			return pipeline.Reject(errors.New("nothing is left of its caption"))
		}
		if text != v.Caption {
			changed++
			s.set.Log.Debug("changed", "sample", v.ID, "from", v.Caption, "to", text)
		}
		v.Caption = text
		return s.out.Send(ctx, v)
	})
}

var link = regexp.MustCompile(`https?://\S+`)

// clean returns the caption without links, repeated or unwanted tags, and stray blanks.
func (s *cleaner) clean(caption string) string {
	seen := map[string]bool{}
	for _, tag := range s.cfg.Remove {
		seen[strings.ToLower(tag)] = true
	}
	var tags []string
	for _, tag := range strings.Split(link.ReplaceAllString(caption, ""), ",") {
		tag = strings.Join(strings.Fields(tag), " ")
		if key := strings.ToLower(tag); tag != "" && !seen[key] {
			seen[key] = true
			tags = append(tags, tag)
		}
	}
	words := strings.Fields(strings.Join(tags, ", "))
	if s.cfg.MaxWords > 0 && len(words) > s.cfg.MaxWords {
		words = words[:s.cfg.MaxWords]
	}
	return strings.TrimRight(strings.Join(words, " "), ",")
}
