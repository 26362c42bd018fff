// The table of trampolines: function i has a name and jumps to what it was bound to.
int longship_function_count(void);
const char *longship_function_name(int i);
void longship_bind(int i, void *address);
