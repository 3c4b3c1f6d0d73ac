// The store from C++: handles that end by themselves, errors as exceptions, and threads that share a store.
//
//     c++ -std=c++17 -pthread threads.cpp $(pkg-config --cflags --libs forebay-store) && ./a.out DIRECTORY
#include <forebay/store.h>

#include <iostream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

// Throws what a call put into it.
class Error {
  public:
    operator char **() { return &message; }
    void check() {
        if (!message) return;
        std::string said = message;
        forebay_free(message);
        message = nullptr;
        throw std::runtime_error(said);
    }

  private:
    char *message = nullptr;
};

struct Ends {
    void operator()(forebay_options_t *it) const { forebay_options_destroy(it); }
    void operator()(forebay_readoptions_t *it) const { forebay_readoptions_destroy(it); }
    void operator()(forebay_writeoptions_t *it) const { forebay_writeoptions_destroy(it); }
    void operator()(forebay_iterator_t *it) const { forebay_iter_destroy(it); }
    void operator()(forebay_t *it) const { forebay_close(it); }
};
template <class T> using Held = std::unique_ptr<T, Ends>;

class Store {
  public:
    explicit Store(const char *name) {
        Held<forebay_options_t> options(forebay_options_create());
        forebay_options_set_create_if_missing(options.get(), 1);
        Error error;
        db.reset(forebay_open(options.get(), name, error));
        error.check();
    }

    void put(std::string_view key, std::string_view value) {
        Error error;
        forebay_put(db.get(), synced.get(), key.data(), key.size(), value.data(), value.size(), error);
        error.check();
    }

    std::optional<std::string> get(std::string_view key) const {
        Error error;
        size_t len;
        char *value = forebay_get(db.get(), now.get(), key.data(), key.size(), &len, error);
        error.check();
        if (!value) return std::nullopt;
        std::string copy(value, len);
        forebay_free(value);
        return copy;
    }

    // From the last key to the first.
    std::vector<std::string> keys_backward() const {
        Error error;
        Held<forebay_iterator_t> at(forebay_create_iterator(db.get(), now.get(), error));
        error.check();
        std::vector<std::string> keys;
        size_t len;
        for (forebay_iter_seek_to_last(at.get()); forebay_iter_valid(at.get()); forebay_iter_prev(at.get())) {
            const char *key = forebay_iter_key(at.get(), &len);
            keys.emplace_back(key, len);
        }
        forebay_iter_get_error(at.get(), error);
        error.check();
        return keys;
    }

  private:
    Held<forebay_readoptions_t> now{forebay_readoptions_create()};
    Held<forebay_writeoptions_t> synced{forebay_writeoptions_create()};
    Held<forebay_t> db;
};

int main(int argc, char **argv) try {
    const char *name = argc > 1 ? argv[1] : "threads-store";
    {
        Store store(name);
        std::vector<std::thread> writers;
        for (int writer = 0; writer < 4; writer++)
            writers.emplace_back([&store, writer] {
                for (int i = 0; i < 25; i++)
                    store.put("key " + std::to_string(writer * 25 + i + 100), std::to_string(i));
            });
        for (auto &writer : writers) writer.join();
        try {
            Store again(name);
        } catch (const std::runtime_error &error) {
            std::cout << "refused: " << error.what() << "\n";
        }
    }
    Store store(name); // what was put is there
    auto keys = store.keys_backward();
    std::cout << keys.size() << " keys, from " << keys.front() << " to " << keys.back() << "\n";
    std::cout << "key 199: " << store.get("key 199").value_or("none") << "\n";
    return 0;
} catch (const std::exception &error) {
    std::cerr << error.what() << "\n";
    return 1;
}
