package train

import (
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"longship/pipeline"
	"longship/stages/port"
)

// fixed are this stage's settings that may not change between the runs that
// make one adapter.
var fixed = []string{
	"optimizer", "network.type", "network.rank", "network.alpha", "network.targets", "network.exclude",
}

// baseWeights is the setting that names the base by its content.
const baseWeights = "base weights"

// settings lists the pipeline's settings by their place in the YAML,
// "train.lr", sorted. Keys with two names are listed under the one, and the type
// of the adapter by what it is, not as auto.
func settings(env *pipeline.Env, id string, c *Config) ([]port.Setting, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(env.Config, &doc); err != nil {
		return nil, fmt.Errorf("settings of the run: %w", err)
	}
	flat := map[string]string{}
	if len(doc.Content) > 0 {
		flatten(flat, "", doc.Content[0])
	}
	for _, key := range []string{"network.linear", "network.linear_alpha", "max_grad_norm"} {
		delete(flat, id+"."+key)
	}
	flat[id+".network.rank"] = fmt.Sprint(c.Network.rank())
	flat[id+".network.alpha"] = fmt.Sprint(c.Network.alpha())
	flat[id+".network.dtype"] = c.Network.dtypeName()
	flat[id+".clip.norm"] = fmt.Sprint(c.clipNorm())

	out := make([]port.Setting, 0, len(flat))
	for name, value := range flat {
		key, mine := strings.CutPrefix(name, id+".")
		out = append(out, port.Setting{Name: name, Value: value, Fixed: name == "seed" || mine && slices.Contains(fixed, key)})
	}
	slices.SortFunc(out, func(a, b port.Setting) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// flatten adds the scalars below n to flat by their place. A list of scalars is
// one value; a stage in the list of stages stands under its id.
func flatten(flat map[string]string, place string, n *yaml.Node) {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			flatten(flat, join(place, n.Content[i].Value), n.Content[i+1])
		}
	case yaml.SequenceNode:
		if place == "stages" {
			for _, stage := range n.Content {
				flattenStage(flat, stage)
			}
			return
		}
		values := make([]string, len(n.Content))
		for i, v := range n.Content {
			if v.Kind != yaml.ScalarNode {
				flatten(flat, fmt.Sprintf("%s[%d]", place, i), v)
				continue
			}
			values[i] = v.Value
		}
		flat[place] = "[" + strings.Join(values, ", ") + "]"
	case yaml.ScalarNode:
		flat[place] = n.Value
	}
}

// flattenStage adds one entry of the list of stages: {type: {id: …, key: …}}.
func flattenStage(flat map[string]string, n *yaml.Node) {
	if n.Kind != yaml.MappingNode || len(n.Content) != 2 {
		return
	}
	id, config := n.Content[0].Value, n.Content[1]
	for i := 0; i+1 < len(config.Content); i += 2 {
		if config.Content[i].Value == "id" {
			id = config.Content[i+1].Value
		}
	}
	flatten(flat, id, config)
}

func join(place, key string) string {
	if place == "" {
		return key
	}
	return place + "." + key
}
