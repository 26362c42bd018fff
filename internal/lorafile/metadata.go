package lorafile

import (
	"encoding/json"
	"slices"
	"strconv"

	"longship/stages/port"
)

// metadata is what every file says of itself: ai-toolkit's keys, rank and alpha
// as kohya's readers look for them (folded, so alpha is the rank), and under
// "longship" how it was trained. The hashes are filled in by the digester.
func metadata(opt Options, st *port.State) map[string]string {
	rank := strconv.Itoa(st.Adapter.Rank)
	return map[string]string{
		"format":                "pt",
		"software":              text(map[string]string{"name": "longship"}),
		"training_info":         text(map[string]int64{"step": int64(st.Step), "epoch": st.Counters["epoch"]}),
		"ss_base_model_version": st.Adapter.Arch,
		"ss_output_name":        opt.Name,
		"ss_network_dim":        rank,
		"ss_network_alpha":      rank,
		"longship": text(map[string]any{
			"type": st.Adapter.Type, "rank": st.Adapter.Rank, "alpha": st.Adapter.Alpha, "targets": st.Adapter.Targets,
			"base": st.Adapter.Base, "ema": st.Params[0].EMA.Valid(),
		}),
		modelHashKey:  modelHashBlank,
		legacyHashKey: legacyHashBlank,
	}
}

// peftMetadata is the LoraConfig of PEFT as diffusers stores it, the long-lived
// keys of it: an unknown key is an error in older versions. The diffusers
// loader takes rank and alpha from here; modules of another rank than the first
// are in the patterns.
func peftMetadata(modules []ranked) string {
	rank := modules[0].rank
	names, pattern := make([]string, len(modules)), map[string]int{}
	for i, m := range modules {
		names[i] = m.name
		if m.rank != rank {
			pattern[m.name] = m.rank
		}
	}
	slices.Sort(names)
	config := map[string]any{
		"r": rank, "lora_alpha": rank, "lora_dropout": 0.0, "bias": "none", "target_modules": names,
		"rank_pattern": pattern, "alpha_pattern": pattern, "init_lora_weights": true,
		"use_dora": false, "use_rslora": false, "lora_bias": false,
	}
	prefixed := make(map[string]any, len(config))
	for k, v := range config {
		prefixed["transformer."+k] = v
	}
	b, err := json.MarshalIndent(prefixed, "", "  ")
	if err != nil {
		panic(err) // plain values always encode
	}
	return string(b)
}

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain values always encode
	}
	return string(b)
}
