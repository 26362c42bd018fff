//go:build cuda && windows

#include <stdio.h>
#include <string.h>
#include <windows.h>

#include "library.h"

void *longship_open(const char *path, char **why) {
	// The folder of the library is searched for what it needs itself.
	DWORD flags = strchr(path, '\\') ? LOAD_WITH_ALTERED_SEARCH_PATH : 0;
	HMODULE library = LoadLibraryExA(path, NULL, flags);
	if (library == NULL) {
		char text[64];
		snprintf(text, sizeof text, "LoadLibrary: error %lu", GetLastError());
		*why = strdup(text);
	}
	return (void *)library;
}

void *longship_symbol(void *library, const char *name) {
	return (void *)GetProcAddress((HMODULE)library, name);
}

void longship_path(void *address, char *path, int size) {
	HMODULE module;
	path[0] = 0;
	if (GetModuleHandleExA(GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT, address, &module))
		GetModuleFileNameA(module, path, size);
}
