import java.io.BufferedReader;
import java.io.InputStreamReader;

/** What a session in Java does when it is told; what that is, protocol.py says. */
interface NumberSession {
    /** Returns when the program has acknowledged it. */
    void write(long number) throws Exception;

    /** Prints all numbers that are there, and the end. */
    void read() throws Exception;

    /** Writes each, and says when it is acknowledged. */
    default void write(long first, long last) throws Exception {
        for (long number = first; number <= last; number++) {
            write(number);
            System.out.println("ack " + number);
            System.out.flush();
        }
    }

    /** Does what standard input says, until it ends. */
    static void serve(NumberSession session) throws Exception {
        System.out.println("ready");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("read")) {
                session.read();
            } else {
                session.write(Long.parseLong(words[1]), Long.parseLong(words[2]));
            }
        }
    }
}
