// Longship trains LoRA adapters of FLUX.2 on one GPU.
//
// To add stages of your own in process, copy this file into a module of yours
// and append their factories to the list.
package main

import "longship/stages"

func main() { stages.Main(stages.Builtin()...) }
