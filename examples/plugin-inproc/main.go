// Myship is longship with one more stage, filter_images, compiled in.
package main

import "longship/stages"

func main() { stages.Main(append(stages.Builtin(), factory())...) }
