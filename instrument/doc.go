// Package instrument records what a run does with memory.
//
// A [Recorder] listens to the event stream of a caching allocator and keeps,
// at every event, the allocated bytes of each [Category]. It keeps the events
// themselves in a bounded ring, the state at the allocated peak (which module
// and operation held what), and the phases and marks by which a run is told
// afterwards. It guesses nothing from sizes: who allocates says what for, with
// a [Label] interned as the allocator's tag.
//
// All byte counts are those of the allocator's blocks, that is, after rounding,
// so that they add up to the allocator's own figures. Allocated memory lies
// inside reserved memory: the two are never added.
package instrument
