// Types of the standard library that only host code uses, declared because functions of classes may name them.
#ifndef CUDABENCH_STANDARD_TYPES
#define CUDABENCH_STANDARD_TYPES
namespace std {
template <class...> class allocator;
template <class...> class basic_string;
using string = basic_string<char>;
using wstring = basic_string<wchar_t>;
template <class...> class vector;
template <class...> class list;
template <class...> class deque;
template <class...> class queue;
template <class...> class priority_queue;
template <class...> class stack;
template <class...> class map;
template <class...> class multimap;
template <class...> class set;
template <class...> class multiset;
template <class...> class unordered_map;
template <class...> class unordered_set;
template <class...> class shared_ptr;
template <class...> class unique_ptr;
template <class...> class weak_ptr;
template <class> class function;
template <class> class future;
template <class...> class basic_istream;
template <class...> class basic_ostream;
using istream = basic_istream<char>;
using ostream = basic_ostream<char>;
class iostream;
class ifstream;
class ofstream;
class fstream;
class istringstream;
class ostringstream;
class stringstream;
class exception;
class runtime_error;
class mutex;
class thread;
}  // namespace std
#endif
