// Shared libraries found at run time.

// longship_open opens a library; on failure it returns NULL and sets *why to
// text that the caller frees.
void *longship_open(const char *path, char **why);
// longship_symbol returns the address of a name, NULL where there is none.
void *longship_symbol(void *library, const char *name);
// longship_path writes the file that holds an address; empty where unknown.
void longship_path(void *address, char *path, int size);
