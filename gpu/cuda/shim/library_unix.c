//go:build cuda && !windows

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "library.h"

void *longship_open(const char *path, char **why) {
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (library == NULL) *why = strdup(dlerror());
	return library;
}

void *longship_symbol(void *library, const char *name) { return dlsym(library, name); }

void longship_path(void *address, char *path, int size) {
	Dl_info info;
	path[0] = 0;
	if (dladdr(address, &info) && info.dli_fname) snprintf(path, size, "%s", info.dli_fname);
}
